"""What is predicted: after retrieved precedents, one observation at a time, within stated bounds, and never as evidence."""
