"""Documents that `--json` prints: each is a dataclass, of which its published schema is made."""
