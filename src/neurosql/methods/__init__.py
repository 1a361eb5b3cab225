"""Learning principles, one file each."""
