"""Contract: the files that launcher and box exchange, with their fields and types."""
