"""GPU names and sizes, as Vast, NVIDIA's driver and people write them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_NOMINAL = 0.95
"""Usable share of a GPU's nominal memory: an L40S of 48 GB has 46.07 GB, an L4 of 24 GB 23.03 GB."""
_ALIASES = {"MAXQ": "MAX-Q", "NOTEBOOK": "LAPTOP"}
_JOINED = re.compile(r"\b(\d{4})(TI|SUPER|S|D|ADA)\b")
"""`4090D`, `4070S`, `3060TI`, `6000ADA`: a number and a variant in one word."""
_VARIANTS = frozenset({"TI", "D", "SUPER", "NVL", "LAPTOP", "MAX-Q"})
"""Words that a driver always writes and that mean another GPU."""
_NAME_CHARACTERS = 64
"""Characters of a market's name that are compared: the time grows with them."""
_SOCKETS = ("SXM", "PCIE")
"""Prefixes of a GPU's form factor. A driver omits some: an H100 for SXM is an `H100 80GB HBM3`."""


def gpu_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in one spelling: `RTX_4090D` and `RTX 4090 D` are the same."""
    spaced = re.sub(r"\bMAX[-\s]?Q\b", "MAXQ", name.upper().replace("_", " "))
    words = _JOINED.sub(r"\1 \2", spaced).replace("-", " ").split()
    # `RTX PRO 6000 S` is its server edition.
    aliases = _ALIASES if "PRO" in words else {**_ALIASES, "S": "SUPER"}
    return tuple(aliases.get(word, word) for word in words)


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names from a market or a job file mean the same GPU."""
    return gpu_words(one) == gpu_words(other)


def is_named(requested: str, shown: str) -> bool:
    """Return whether a market's or a driver's name has each word of the requested one."""
    return {*gpu_words(requested)} <= {*gpu_words(shown)}


def nearest_names(requested: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names, the most alike first; those of the same model come before others."""
    words = gpu_words(requested)
    models = {word for word in words if any(map(str.isdigit, word))}

    def likeness(name: str) -> float:
        other = gpu_words(name[:_NAME_CHARACTERS])
        ratio = SequenceMatcher(None, " ".join(words), " ".join(other)).ratio()
        return ratio + (not models.isdisjoint(other))

    ordered = sorted(set(known), key=lambda name: (-likeness(name), name))
    return [name for name in ordered[:3] if likeness(name) > 0.6]


def spellings(name: str) -> list[str]:
    """Return the spellings of the name on a market: with the variant apart or not, with spaces or
    underscores."""
    spaced = name.replace("_", " ")
    apart = re.sub(r"(?<=\d{4})(?=D\b)", " ", spaced)
    joined = re.sub(r"(?<=\d{4}) (?=D\b)", "", spaced)
    written = (name, spaced, apart, joined)
    return list(dict.fromkeys((*written, *(one.replace(" ", "_") for one in written))))


def may_be(offered: str, shown: str) -> bool:
    """Return whether a driver's name may be that of the offer: `NVIDIA A100-SXM4-80GB` is an `A100 SXM4`."""
    expected, words = gpu_words(offered), gpu_words(shown)
    model = next((word for word in expected if re.search(r"\d", word)), None)
    if model is None:
        return True
    if model not in words:
        return False
    sockets = _socket(expected), _socket(words)
    if None not in sockets and sockets[0] != sockets[1]:
        return False
    return _VARIANTS & {*expected} == _VARIANTS & {*words}


def has_memory(gpu_gb: float, requested_gb: float) -> bool:
    """Return whether a GPU has the requested memory, by its nominal size."""
    return gpu_gb >= min_usable_gb(requested_gb)


def min_usable_gb(requested_gb: float) -> float:
    """Return the lowest usable memory, in GB, of a GPU of that nominal size."""
    return requested_gb * _NOMINAL


def _socket(words: Sequence[str]) -> str | None:
    return next((socket for socket in _SOCKETS for word in words if word.startswith(socket)), None)
