"""Hostile bytes, and every reader of bytes from outside. How to join is in `assault`."""
