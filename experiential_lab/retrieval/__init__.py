"""What may be consulted: real transitions become an exact index, and every search leaves a receipt of what it could see."""
