"""Hints for batches: what to try next, with the options that `batch submit` and `sweep` have."""

from __future__ import annotations

import re

_SET = re.compile(r"--set ([\w.]+)=([^\s,]+)(?:, or (?:set )?[\w. ]+ in the job file)?")
_USD = re.compile(r"limits: \{usd: ([\w.]+)\}( or more)? in the batch file, or --usd(?: USD)?")


def hint_for_batch(hint: str) -> str:
    """Return the hint for `batch submit`, which has neither --set nor --usd: what to write in which file."""
    in_file = _USD.sub(r"limits: {usd: \1}\2 in the batch file", hint)
    return _SET.sub(r"\1: \2 in the job file", in_file)


def hint_for_sweep(hint: str) -> str:
    """Return the hint for `sweep`, which has --set, --usd and --name, and no batch file."""
    as_option = _USD.sub(r"--usd \1\2", hint)
    return as_option.replace("another name: in the batch file", "another --name").replace(
        "another name:", "another --name"
    )
