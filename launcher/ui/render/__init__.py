"""Text output: pure functions from records to text."""
