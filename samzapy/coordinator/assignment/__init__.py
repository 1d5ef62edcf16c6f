"""The owner of each task, and the offsets that it starts from."""
