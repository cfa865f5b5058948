"""Contract: the files between launcher and box, with their fields and types; all the launcher may import."""
