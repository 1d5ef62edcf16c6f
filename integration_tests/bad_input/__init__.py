"""What can be wrong with a job, its data and its cluster: each thing is told by name, and nothing is skipped."""
