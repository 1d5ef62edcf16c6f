"""Containers that the coordinator starts, and their standbys."""
