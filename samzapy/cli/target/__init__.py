"""The job that a command is about: its address, its status, requests to it."""
