"""Operator requests, one module per action, and the queue that they wait in."""
