"""What it was built for: no GPU."""

cuda = None
