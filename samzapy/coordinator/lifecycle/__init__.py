"""Jobs and runs: submission, membership, downgrade."""
