"""`samzapy stream` and `samzapy task`."""
