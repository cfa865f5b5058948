"""The documentation: what of it is written from the code, and whether what it says is there."""
