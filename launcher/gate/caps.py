"""Caps: upper limits for all that a machine or a service sends, and the budget of one exchange.

Bytes and items of HTTP responses count against it while they arrive. The sender is blamed for more.
tests/launcher/gate/test_caps.py bounds the memory that each may cost.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from vastrun.contract import layout
from vastrun.launcher.core import boxes
from vastrun.launcher.core.errors import BoxError

if typing.TYPE_CHECKING:
    from requests import Response, Session


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Limits of one exchange."""

    bytes: float = math.inf
    """Bytes that arrive. Outputs are limited by the machine's disk instead; a run by its time and money."""
    items: float = math.inf
    """Number of items: files, or what `what` names."""
    what: str = "files"
    """Name of the items in messages."""
    seconds: float = math.inf
    """Seconds after which the exchange stops; it may be continued later."""
    memory: float = 0
    """Bytes that are held in memory at once."""


SMALL_FILES: Mapping[str, int] = {
    layout.EXIT: 64,
    layout.LEASE_STATE: 4 << 10,
    layout.ONSTART_ERRORS: 1 << 16,
    f"{layout.CHECKPOINTS}/latest.json": 4 << 10,
    layout.STEPS: 1 << 18,
    layout.LEASE_LOG: 1 << 20,
    layout.FINAL: 1 << 20,
    layout.STATUS: 1 << 22,
    layout.OUTCOME: 1 << 23,
    layout.MANIFEST: 1 << 24,
    layout.METRICS: 1 << 26,
}
"""Bytes of each file that is downloaded without a checksum."""
CHECKPOINT_MANIFEST = 1 << 24
"""Bytes of a checkpoint's manifest."""
FILES = 50_000
"""Files in one manifest."""
NAME_BYTES = 255
"""Bytes of one component of a path: NAME_MAX of most file systems."""
PATH_BYTES = 1024
"""Bytes of a whole path: PATH_MAX of macOS."""
PATH_FOLDERS = 64
"""Folders of a path: each name is checked, and a path of 1 kB could have 500."""
RANKS = boxes.MAX_RANKS
"""Ranks of one machine: as many as a job may ask for."""
COMMAND_BYTES = 1 << 20
"""Bytes that a command may print, on stdout and on stderr each."""
FOLLOWED_BYTES = 1 << 20
"""Bytes of a followed log that wait in memory: what is not taken waits on the machine."""
GREETING_BYTES = 1 << 18
"""Bytes that a machine may print before the output of a command."""
REPLY_BYTES = 1 << 10
"""Bytes of a response line from one of vastrun's scripts on the machine."""
READ_S = 1.0
"""Seconds after which a read returns what has come: the user, time and money are checked between reads."""
SLICE_S = 2.0
"""Seconds for a part of a file while a training runs: the next status comes first."""
LINE_CHARACTERS = 1 << 16
"""Characters of a log line as it is shown; the copy on disk is complete."""
LOG_BYTES = 8 << 30
"""Bytes of the copy of the log, rotated copies included."""
LOGS = 4
"""Logs that a box may start: each new start rotates the previous copy."""
METRICS_SLICE_BYTES = 1 << 20
"""Bytes of metrics that are read in one poll during training, and the maximum length of a line."""
METRICS_LINES = 250_000
"""Lines of metrics that are read for a picture; longer files are sampled at every second or third line."""
METRICS_VALUES = 400_000
"""Values that the Python API returns, steps included; longer files are sampled evenly."""
METRICS_NAMES = 1000
"""Distinct names of one metrics file in the Python API; further names are dropped."""
STEPS = 10**15
LOSS = 1e30
"""Largest loss that is drawn: larger values have diverged."""
MIN_LOSS = 1e-30
"""Smallest loss that is drawn; smaller values count as 0."""
SERIES = 96
"""Names of one metrics file that are drawn: 16 GPUs have 64."""
SERIES_LINES = 20_000
"""Lines of metrics that are read for a report; longer files are sampled at every second or third line."""
VAST_LOG_BYTES = 1 << 18
"""Bytes of a container's or host's log that Vast publishes; the rest is dropped."""

PICTURE_BYTES = 1 << 20
PICTURE_PIXELS = 1 << 24
"""Pixels of one picture: a viewer needs 64 MB for them."""

BOOT_STEPS = 100
"""Steps of a machine's start."""
COMBINING_MARKS = 4
"""Consecutive combining marks in a text that a terminal shows."""
ADDRESSES_CHARACTERS = 4000
"""Characters of the list of a machine's addresses."""
SLURM_CHARACTERS = 300
"""Characters of one field that Slurm prints."""
SLURM_NODES = 64
"""Nodes of one job."""
SLURM_NUMBER = 10**9
"""Largest number of seconds, nodes, cores or MB that Slurm prints."""
SLURM_REPLY_CHARACTERS = 40
"""Characters of a job's reply about its box."""
REGISTRY_ENTRIES = 1000
"""Platforms or layers in a registry's answer."""
REGISTRY_LABELS = 1000
"""Labels of an image."""
LAYER_BYTES = 1 << 44
"""Size of one layer, as a registry states it."""
REGISTRY_CHARACTERS = 64_000
"""Characters of one text from a registry."""
SSH_COMMENT_CHARACTERS = 400
"""Characters of a comment in a `Host` block, such as the folder on a machine."""
KEY_LINE_CHARACTERS = 500
"""Characters of a log line that may name a host key: matching takes time with the square of its length."""
VAST_ID = 1 << 63
"""Largest id of an account."""
CLOCK_AHEAD_S = 366 * 86_400.0
"""Largest difference between two clocks that is believed, in seconds."""
RETRY_AFTER_S = 120.0
"""Largest Retry-After of Vast in seconds; the call fails when it asks for more."""
VAST_USD = 1e9
"""Largest credit or charge, in USD."""
VAST_NUMBER = 1e12
"""Largest number in an answer from Vast."""
LABEL_CHARACTERS = 256
"""Characters of the label of a machine or a network."""
VAST_CHARACTERS = 4000
"""Characters of one text from Vast."""
GPU_GB = 1000.0
"""Largest memory of one GPU, in GB."""
PICTURES = 48
"""Pictures of one report: four of each of eleven tasks, and some room."""
WANDB_FOLDERS = 20
"""Offline runs of W&B that a run's index names."""
DETAIL_CHARACTERS = 4000
"""Characters of a detail or an event in the ledger, which may come from a machine."""

EXCHANGES: Mapping[str, Allowance] = {
    "outputs": Allowance(items=FILES, memory=SMALL_FILES[layout.MANIFEST]),
    "checkpoint": Allowance(
        bytes=(32 << 20) + CHECKPOINT_MANIFEST + (8 << 10),
        items=FILES,
        seconds=SLICE_S,
        memory=CHECKPOINT_MANIFEST + (8 << 10),
    ),
    "registry": Allowance(items=8, what="answers", seconds=120.0, memory=4 << 20),
    "docker": Allowance(items=2_000_000, what="messages", memory=4 << 20),
    "docker answer": Allowance(seconds=60.0, memory=4 << 20),
    "vast": Allowance(items=100_000, what="objects and lists", seconds=60.0, memory=6 << 20),
    "vast list": Allowance(items=40_000, what="rows", memory=4 << 20),
    # A team's own database: not a stranger, and a large team has many runs.
    "ledger": Allowance(items=1_000_000, what="rows", memory=256 << 20),
    "slurm": Allowance(items=20_000, what="lines", memory=COMMAND_BYTES),
}
"""Limits of each exchange: with a machine, a registry, Docker, Vast, a ledger in PostgreSQL and Slurm.

The first two are with a machine: a download of all outputs, and a slice of a checkpoint during training.
"""


class ExchangeBudgetError(BoxError):
    """An exchange exceeded its budget."""


class ExchangeBudget:
    """Bytes, items, seconds and memory that are left for one exchange.

    Created where the exchange begins and passed to every function that receives a part of it:

        budget = ExchangeBudget(caps.EXCHANGES["outputs"], check=remote.raise_if_stopped, now=time.monotonic)
        budget.spend(items=1)
    """

    def __init__(
        self,
        allowance: Allowance,
        *,
        check: Callable[[], None] = lambda: None,
        now: Callable[[], float],
        sender: str = "the machine",
        error: Callable[[str], Exception] = ExchangeBudgetError,
    ) -> None:
        """`check` raises when the exchange must end: the user, time or money. `now`: a clock in seconds.

        `sender`: the machine or service, for the message of `error`, which is raised when the budget is
        exceeded.
        """
        self._allowance, self._check, self._now = allowance, check, now
        self._sender, self._error = sender, error
        self._until = now() + allowance.seconds
        self._bytes, self._items, self._memory = allowance.bytes, allowance.items, allowance.memory

    def check(self) -> None:
        """Raise the error that ends the exchange. Called once an item, and in every long calculation."""
        self._check()

    def spend(self, *, size: float = 0, items: float = 0, memory: float = 0) -> None:
        """Subtract bytes that arrived, items, and bytes that stay in memory. Calls `check` first.

        Raises `error`.
        """
        self._check()
        self._bytes -= size
        self._items -= items
        self._memory -= memory
        allowance = self._allowance
        if self._bytes < 0:
            self._refuse(f"more than {allowance.bytes:.0f} bytes")
        if self._items < 0:
            self._refuse(f"more than {allowance.items:.0f} {allowance.what}")
        if self._memory < 0:
            self._refuse(f"more than {allowance.memory:.0f} bytes to be read at once")

    @property
    def spent_memory(self) -> float:
        """Bytes that were spent on memory."""
        return self._allowance.memory - self._memory

    def remaining_s(self, limit_s: float = math.inf) -> float:
        """Return the seconds left for the next request, at most `limit_s`. Calls `check` first.

        Raises `error` when no time is left.
        """
        self._check()
        if self.is_late:
            raise self._error(f"{self._sender} did not answer within {self._allowance.seconds:.0f} s")
        return min(limit_s, self._until - self._now())

    def receive(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks of a response that is held in memory, after counting each. Raises `error`."""
        for chunk in chunks:
            self.remaining_s()
            self.spend(size=len(chunk), memory=len(chunk))
            yield chunk

    def _refuse(self, what: str) -> NoReturn:
        raise self._error(f"{self._sender} sent {what}")

    @property
    def is_late(self) -> bool:
        """True when no time is left. An exchange that can be continued later stops then."""
        return self._now() >= self._until


def count_parts(chunks: Iterable[bytes], budget: ExchangeBudget) -> Iterator[bytes]:
    """Yield the chunks of a JSON response after counting bytes, objects and lists. Raises its error."""
    for chunk in budget.receive(chunks):
        # A parsed object or list takes 60 bytes and more, but only two characters in the response.
        budget.spend(items=chunk.count(b"{") + chunk.count(b"["))
        yield chunk


class _CountedBody:
    """A urllib3 response body that counts its bytes and JSON containers against a budget."""

    def __init__(self, raw: Any, budget: ExchangeBudget) -> None:
        self._raw, self._budget = raw, budget

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        return count_parts(self._raw.stream(*arguments, **options), self._budget)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def limit_responses(session: Session, budget: Callable[[], ExchangeBudget]) -> None:
    """Count the session's responses against a budget: decompressed, redirects included.

    `budget`: returns the budget of the current exchange; an error that it raises ends the read.
    """

    def count(response: Response, **_: Any) -> None:
        response.raw = _CountedBody(response.raw, budget())

    session.hooks["response"].append(count)
