"""Hostile bytes, and each reader of bytes from outside.

The docstring of `assault` says how to join.
"""
