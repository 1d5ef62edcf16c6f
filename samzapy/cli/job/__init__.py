"""`samzapy job`."""
