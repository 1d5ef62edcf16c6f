"""Bytes that mean harm, and everything of ours that reads bytes from outside. `assault` says how to join."""
