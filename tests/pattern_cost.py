"""How the time of a regular expression grows with its text, by its structure.

A search may begin anywhere, as if a repeat of all characters stood before the pattern. Two repeats that can
take each other's characters, and those between them, split a text in as many ways as it has characters; when
what follows fails, each is tried.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import and_, or_
from typing import Any

MAX_REPEATS = 500
"""Repeats of a part that count as few: a factor of the time, not a power."""
_ALPHABET = frozenset(map(chr, range(256))) | frozenset("äβЖ中\u2028")
_ALL = _ALPHABET | {"other"}
_C: Any = re._constants  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Part:
    """One character, or a repeat of such, or a place without width (`chars` is empty)."""

    chars: frozenset[str] = field(repr=False)
    repeats: bool = False
    optional: bool = False
    takes_all: bool = False
    """A possessive repeat gives nothing back."""
    has_width: bool = True
    must: bool = True
    """The pattern fails without it."""


class TooComplexError(Exception):
    """The pattern has too many alternatives."""


def is_superlinear(pattern: re.Pattern[Any], *, starts: bool, ends: bool) -> bool:
    """Return whether the time can grow with the square of the text, or faster.

    `starts`, `ends`: the match begins at the start, or must reach the end. Raises TooComplexError.
    """
    source, flags = pattern.pattern, pattern.flags
    text = source if isinstance(source, str) else source.decode("latin-1")
    tree = re._parser.parse(text, flags & ~re.UNICODE if isinstance(source, bytes) else flags)
    reader = _Reader(flags, is_search=not starts)
    before = [] if starts else [Part(_ALL, repeats=True, optional=True)]
    after = [Part(frozenset())] if ends else []
    return any(_is_ambiguous([*before, *parts, *after]) for parts in reader.sequences(tree)) or (
        reader.has_ambiguous_loop
    )


def _is_ambiguous(parts: Sequence[Part]) -> bool:
    repeats = [at for at, part in enumerate(parts) if part.repeats]
    for first, second in itertools.combinations(repeats, 2):
        common = parts[first].chars & parts[second].chars
        between = parts[first + 1 : second]
        if not common or parts[first].takes_all:
            continue
        if not all(part.optional or not part.has_width or part.chars & common for part in between):
            continue
        if any(_may_fail(part, parts[second]) for part in parts[second + 1 :]):
            return True
    return False


def _may_fail(part: Part, repeat: Part) -> bool:
    """Return whether the pattern may fail at a part behind a repeat. The end of a line is always reached."""
    is_reached = not part.has_width and part.chars | repeat.chars == _ALL
    return part.must and not part.optional and not is_reached


class _Reader:
    """A parsed pattern without alternatives and groups: each way through it, and through loops twice."""

    def __init__(self, flags: int, *, is_search: bool) -> None:
        self._flags, self._is_search = flags, is_search
        self.has_ambiguous_loop = False
        """True if two alternatives of a loop begin alike."""

    def sequences(self, items: Iterable[Any]) -> list[list[Part]]:
        """Return each way through these items."""
        found: list[list[Part]] = [[]]
        for op, value in items:
            ways = self._ways(op, value)
            found = [[*before, *way] for before in found for way in ways]
            if len(found) > 3000:
                raise TooComplexError
        return found

    def _ways(self, op: Any, value: Any) -> list[list[Part]]:
        if op in (_C.LITERAL, _C.NOT_LITERAL, _C.ANY, _C.IN):
            return [[Part(_chars(op, value, self._flags))]]
        if op is _C.AT:
            return [[self._place(value)]]
        if op is _C.ASSERT_NOT and value[0] < 0:
            # The character before is another one: a search cannot begin in the middle of such.
            ways = self.sequences(value[1])
            return [[Part(_ALL - reduce(and_, (way[-1].chars for way in ways)))]]
        if op in (_C.SUBPATTERN, _C.ATOMIC_GROUP):
            return self.sequences(value[-1] if op is _C.SUBPATTERN else value)
        if op is _C.BRANCH:
            return [way for branch in value[1] for way in self.sequences(branch)]
        if op in (_C.MAX_REPEAT, _C.MIN_REPEAT, _C.POSSESSIVE_REPEAT):
            return self._repeat(*value, takes_all=op is _C.POSSESSIVE_REPEAT)
        return [[Part(_ALL)]]  # what looks ahead, or is the same as before

    def _place(self, place: Any) -> Part:
        lines = frozenset("\n" if self._flags & re.MULTILINE else "")
        if place in (_C.AT_BEGINNING, _C.AT_BEGINNING_STRING):
            return Part(lines if place is _C.AT_BEGINNING else frozenset())
        if place is _C.AT_BOUNDARY:
            return Part(_ALL - _category(_C.CATEGORY_WORD))
        return Part(lines, has_width=False, must=place in (_C.AT_END, _C.AT_END_STRING))

    def _repeat(self, least: int, most: int, body: Any, *, takes_all: bool) -> list[list[Part]]:
        ways, many = self.sequences(body), most > MAX_REPEATS
        chars = reduce(or_, (part.chars for way in ways for part in way), frozenset())
        if all(len(way) == 1 and way[0].has_width and not way[0].repeats for way in ways):
            return [[Part(chars, repeats=many, optional=least == 0, takes_all=takes_all)]]
        # The pattern goes on without a part that need not be there.
        spare = [[replace(part, must=False) for part in way] for way in ways]
        once = ways if least else [[], *spare]
        if not many:
            return once
        firsts = [way[0].chars for way in ways if way]
        self.has_ambiguous_loop |= any(one & other for one, other in itertools.combinations(firsts, 2))
        twice = [[*one, *other] for one in (ways if least else spare) for other in spare]
        return [*once, *twice, *([[Part(chars, repeats=True, must=False)]] if self._is_search else [])]


@cache
def _category(name: Any) -> frozenset[str]:
    kind = {
        _C.CATEGORY_DIGIT: r"\d",
        _C.CATEGORY_NOT_DIGIT: r"\D",
        _C.CATEGORY_SPACE: r"\s",
        _C.CATEGORY_NOT_SPACE: r"\S",
        _C.CATEGORY_WORD: r"\w",
        _C.CATEGORY_NOT_WORD: r"\W",
    }[name]
    return frozenset(c for c in _ALPHABET if re.fullmatch(kind, c)) | (
        {"other"} if kind.isupper() or kind == r"\w" else set()
    )


def _chars(op: Any, value: Any, flags: int) -> frozenset[str]:
    if op is _C.LITERAL:
        one = chr(value)
        return frozenset({one.lower(), one.upper()}) if flags & re.IGNORECASE else frozenset({one})
    if op is _C.NOT_LITERAL:
        return _ALL - {chr(value)}
    if op is _C.ANY:
        return _ALL if flags & re.DOTALL else _ALL - {"\n"}
    chars: frozenset[str] = frozenset()
    negated = False
    for kind, what in value:
        if kind is _C.NEGATE:
            negated = True
        elif kind is _C.LITERAL:
            chars |= _chars(_C.LITERAL, what, flags)
        elif kind is _C.RANGE:
            chars |= {c for c in _ALPHABET if what[0] <= ord(c) <= what[1]}
            if what[1] > 255:
                chars |= {"other"}
        else:
            chars |= _category(what)
    return _ALL - chars if negated else chars
