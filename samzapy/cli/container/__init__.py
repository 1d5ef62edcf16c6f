"""`samzapy container`."""
