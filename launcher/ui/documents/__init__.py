"""Documents that `--json` prints: dataclasses, from which the published schemas are made."""
