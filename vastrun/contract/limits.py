"""Limits: the constraints of a field; those of annotated-types, where it is installed.

The launcher needs that package for pydantic, which reads its constraints. The trainer reads only their
attributes, by name (`records.py`), so that a training needs only torch, numpy and h5py.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Annotated, Literal

if TYPE_CHECKING:
    from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
else:
    try:
        from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
    except ModuleNotFoundError:
        Ge, Gt, Le, Lt, MinLen, MaxLen = (
            make_dataclass(name, [attribute], frozen=True)
            for name, attribute in (
                *(("Ge", "ge"), ("Gt", "gt"), ("Le", "le"), ("Lt", "lt")),
                *(("MinLen", "min_length"), ("MaxLen", "max_length")),
            )
        )

Auto = Literal["auto"]
Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0), Lt(2**63)]

__all__ = ["Ge", "Gt", "Le", "Lt", "MaxLen", "MinLen"]
