"""Ids of runs, like `calm-heron-3f1a`; labels of machines, with the ledger's id; slots; tags of a job."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.outcome import EpochSeconds
from vastrun.contract.records import MaxLength, Pattern, Range, Text

LABEL_PREFIX = "vastrun-"
_NODE_SUFFIX = re.compile(r"(?<=-[0-9a-f]{4})-n[0-9]{1,2}$", re.ASCII)
_WITH_LEDGER = re.compile(re.escape(LABEL_PREFIX) + r"[^.]+\.([0-9a-f]{8})")
TAKES_SLOTS = "the machine takes slots"
"""Start of the event in the diary of a run that holds a machine, once slots can be made there."""
POOL = "pool"
"""Name of the provider whose machines are slots."""
MAX_UNITS = 64
"""Units of a held machine."""

_Words = Annotated[str, Text(300)]
_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w-]{0,99}\.[0-9a-f]{4})@(?P<holder>[A-Za-z0-9][\w-]{0,99})", re.ASCII
)
_ADJECTIVES = """
    able amber apt bold brave brief bright brisk calm candid clear clever cool crisp deft eager early even
    fair fast fine firm fleet fresh gentle glad golden grand green happy hardy honest ivory jolly keen kind
    light lively loyal lucid mellow merry mild neat nimble noble plain proud quick quiet rapid ready royal
    sharp silent silver sleek smart smooth snug solid spry steady still sunny swift tidy vivid warm wise witty
"""

_NOUNS = """
    alder badger beaver birch bison brook canyon cedar comet coral crane creek dune eagle ember falcon fern
    finch fjord fox gale glacier grove harbor hare hawk hazel heron ibis island jay kestrel lake lark lynx
    maple marten meadow moose nebula oak ocean orca osprey otter owl panda pebble pine plover puffin quail
    raven reef ridge river robin salmon sparrow spruce stork summit swan tern thrush tiger walnut whale willow
"""


def new_id(rng: random.Random) -> str:
    """Draw a random id, one of some hundred million."""
    adjective, noun = rng.choice(_ADJECTIVES.split()), rng.choice(_NOUNS.split())
    return f"{adjective}-{noun}-{rng.randrange(1 << 16):04x}"


def label_of(run_id: str, ledger: str) -> str:
    """Return the label of a run's machine; `ledger`: empty where only its own launchers see the machine."""
    return f"{LABEL_PREFIX}{run_id}.{ledger}" if ledger else LABEL_PREFIX + run_id


def member_id(run_id: str, node: int) -> str:
    """Return the id of the row of that node, like `calm-heron-3f1a-n1`; node 0 is the run itself."""
    return f"{run_id}-n{node}" if node else run_id


def member_folder(node: int) -> str:
    """Return the subfolder of a further node in the outputs of its run, like `node-1`."""
    return f"node-{node}"


def leader_id(name: str) -> str:
    """Return the id of the run where `name` is the id of one of its nodes, else `name`."""
    return _NODE_SUFFIX.sub("", name)


def run_id_in(label: str) -> str:
    """Return the id of the run in the label."""
    return label.removeprefix(LABEL_PREFIX).partition(".")[0]


def ledger_in(label: str) -> str | None:
    """Return the id of the ledger in the label; None where it has none."""
    found = _WITH_LEDGER.fullmatch(label)
    return found[1] if found else None


@dataclass(frozen=True, kw_only=True)
class SlotId:
    """The id of an instance of the provider `pool`: `NAME@HOLDER`."""

    name: str
    """Name of its folder on the machine."""
    holder: str
    """Id of the run that holds the machine."""

    def __str__(self) -> str:
        return f"{self.name}@{self.holder}"


def slot_id_of(instance_id: str) -> SlotId | None:
    """Parse the id of an instance; None when it is not a slot's."""
    found = _ID.fullmatch(instance_id)
    return None if found is None else SlotId(name=found["name"], holder=found["holder"])


@dataclass(frozen=True, kw_only=True)
class Slot:
    """An existing slot, as its machine lists it."""

    name: Annotated[str, MaxLength(120), Pattern(r"[A-Za-z0-9][\w-]*\.[0-9a-f]{4}")]
    label: Annotated[str, MaxLength(120), Pattern(r"vastrun-[\w.-]+")]
    rented_at: EpochSeconds
    units: Annotated[int, Range(1, MAX_UNITS)]
    """Number of the machine's equal parts that it has."""
    is_armed: bool = False
    """True if its lease is armed."""


@dataclass(frozen=True, kw_only=True)
class SlotList:
    """The line that `python -m vastrun.onstart.holding` prints on a held machine."""

    is_ready: bool = False
    """True once it accepts slots."""
    drained: _Words = ""
    """Reason why it accepts no further slots; empty: it does."""
    refused: _Words = ""
    """Reason why the requested slot was not made."""
    slots: Annotated[tuple[Slot, ...], MaxLength(MAX_UNITS)] = ()
    faults: Annotated[tuple[_Words, ...], MaxLength(100)] = ()
    """Leftovers of a slot that was removed."""

    @property
    def taken(self) -> int:
        """Number of parts of the machine that belong to slots."""
        return sum(slot.units for slot in self.slots)


MAX_TAGS = 20
_TAG = re.compile(r"[^\W_](?:[\w .:/=+@-]{0,61}[\w.:/=+@-])?")
_TAG_EXPECTED = "expected up to 63 letters, digits, spaces and _-.:/=+@, the first a letter or digit"


def tag_fault(tag: str) -> str | None:
    """Return why the tag is invalid; None: it is valid. A comma would split it where tags are listed."""
    return None if _TAG.fullmatch(tag) and tag.isprintable() else f"{_TAG_EXPECTED}, got {tag!r}"


def tag_faults(tags: Sequence[str]) -> Iterator[tuple[int | None, str]]:
    """Yield the faults of a job's tags, each with the number of the tag; None: of all together."""
    if len(tags) > MAX_TAGS:
        yield None, f"expected at most {MAX_TAGS} tags, got {len(tags)}"
    for number, tag in enumerate(tags):
        if fault := tag_fault(tag):
            yield number, fault
        elif tag in tags[:number]:
            yield number, f"{tag} is given twice"
