"""Local state on the driver: restored, kept warm, split, merged and removed."""
