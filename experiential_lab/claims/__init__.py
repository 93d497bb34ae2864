"""What may be said: numbers about predictions, and what each of them rests on."""
