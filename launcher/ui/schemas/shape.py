"""JsonShape: an object that `--json` prints, as a type."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar


class JsonShape:
    """An object: the fields of the noun that it shows, but for some, and those that it names itself.

    An underscore at the end of a name is not printed: `from_` is for `from`, which is a word of Python's.
    """

    noun: ClassVar[Any] = None
    without: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()
    """Keys that are there at times only."""

    def __init_subclass__(
        cls,
        *,
        of: Any = None,
        without: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        """Note what it shows."""
        if of is not None:
            cls.noun, cls.without = of, frozenset(without)
        cls.optional = frozenset(optional)

    @classmethod
    def printed(cls) -> Iterator[tuple[str, Any, type]]:
        """Yield the name of each key, its type, and the class that names it."""
        if cls.noun is not None:
            hints = typing.get_type_hints(cls.noun, include_extras=True)
            names = [field.name for field in fields(cls.noun) if field.name not in cls.without]
            yield from ((name, hints[name], cls.noun) for name in names)
        own = {name for kind in cls.__mro__[:-2] for name in kind.__annotations__}
        hints = typing.get_type_hints(cls, include_extras=True)
        yield from ((name, hints[name], cls) for name in hints if name in own)
