"""Jobs and runs: submission, the members of a plan, the way back to an earlier release."""
