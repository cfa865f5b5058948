"""Amounts: numbers as the texts of all parts write them."""

from __future__ import annotations


def how_many(number: int, noun: str) -> str:
    """Write a number with its noun: `1 run`, `1,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
