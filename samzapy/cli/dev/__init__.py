"""`samzapy dev`: Kafka on this machine, and messages written and read by hand."""
