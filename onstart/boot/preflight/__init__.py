"""Preflight: checks of a machine before data is downloaded and training starts."""
