"""Metadata of a field that `--json` does not print."""

HIDDEN = {"hidden": True}
