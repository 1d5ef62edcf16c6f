"""Faults of a job, its data and its cluster: each is reported and none skipped."""
