"""`samzapy doctor`."""
