"""The processes of a job, assembled: leader, container, Python worker."""
