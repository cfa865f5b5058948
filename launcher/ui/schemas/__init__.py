"""Schemas of what `--json` prints: its shapes as types, and the JSON Schema made of them."""
