"""Limits: the marks that say what a field may hold; those of annotated-types, where it is installed.

The launcher needs that package for pydantic, which knows its marks. The trainer reads only their attributes,
by name (`records.py`), so that a training needs torch, numpy and h5py alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
else:
    try:
        from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
    except ModuleNotFoundError:

        @dataclass(frozen=True)
        class Ge:
            """At least this."""

            ge: Any

        @dataclass(frozen=True)
        class Gt:
            """More than this."""

            gt: Any

        @dataclass(frozen=True)
        class Le:
            """At most this."""

            le: Any

        @dataclass(frozen=True)
        class Lt:
            """Less than this."""

            lt: Any

        @dataclass(frozen=True)
        class MinLen:
            """At least this many items."""

            min_length: int

        @dataclass(frozen=True)
        class MaxLen:
            """At most this many items."""

            max_length: int


__all__ = ["Ge", "Gt", "Le", "Lt", "MaxLen", "MinLen"]
