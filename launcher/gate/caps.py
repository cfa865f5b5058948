"""Caps: the most of anything that is taken from a box. What is more is refused, and the box is to blame.

The memory that each may cost stands in tests/launcher/gate/test_caps.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vastrun.contract import layout


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Limits of one exchange."""

    bytes: float = math.inf
    """Bytes that arrive. Of outputs the machine's disk is the limit; of a run, its time and its money."""
    items: float = math.inf
    """Files, or what `what` says."""
    what: str = "files"
    """Name of the items in a message."""
    seconds: float = math.inf
    """Seconds after which it stops, to be continued later."""
    memory: float = 0
    """Bytes that are read into memory as a whole."""


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
"""Bytes of each file that is taken without a checksum."""
CHECKPOINT_MANIFEST = 1 << 24
"""Bytes of the list of a checkpoint's files."""
FILES = 50_000
"""In one list."""
NAME_BYTES = 255
"""Of one part of a path: what the disks of most computers take."""
PATH_BYTES = 1024
"""Of a whole path: what a Mac takes."""
PATH_FOLDERS = 64
"""Folders of a path: the name of each is checked, and a path of 1 kB could have 500."""
RANKS = 64
"""Ranks of one machine: as many as a job may ask for."""
COMMAND_BYTES = 1 << 20
"""What a command may print, on stdout and on stderr each."""
GREETING_BYTES = 1 << 18
"""What a machine may say before the output of a command."""
REPLY_BYTES = 1 << 10
"""A line in which one of our scripts on the machine answers."""
READ_S = 20.0
"""One read returns by then, with what has come: the user, time and money are looked at between reads."""
LINE_CHARACTERS = 1 << 16
"""Of a line of the log as it is shown; the copy on disk has all of it."""
LOG_BYTES = 8 << 30
"""Of the copy of the log, those included that were set aside."""
LOGS = 4
"""How many logs a box may begin: one that is begun anew is a copy more."""
METRICS_SLICE_BYTES = 1 << 20
"""Of the metrics, in one look at a box while it trains; no line of theirs is longer."""
METRICS_LINES = 250_000
"""Of the metrics, as they are read for a picture; of more, every second or third."""
METRICS_VALUES = 400_000
"""Values that the Python API returns, steps included; of more, lines are left out evenly."""
METRICS_NAMES = 1000
"""Different names of one file of metrics, as the Python API returns them; further ones are left out."""
STEPS = 10**15
LOSS = 1e30
"""The largest loss that is drawn: what is larger has diverged."""
LEAST_LOSS = 1e-30
"""What is smaller is 0."""
SERIES = 96
"""Names of one file of metrics that are drawn: of 16 GPUs there are 64."""
SERIES_LINES = 20_000
"""Of the metrics, as they are read for a report; of more, every second or third."""
VAST_LOG_BYTES = 1 << 18
"""Size of a container's or a host's log, as Vast publishes it; the rest is left out."""

PICTURE_BYTES = 1 << 20
PICTURE_PIXELS = 1 << 24
"""Of one picture: what shows it needs 64 MB for them."""

SLOT_UNITS = 64
"""Units of a machine that is held for other runs."""
BOOT_STEPS = 100
"""Steps of a machine's start."""
COMBINING_MARKS = 4
"""Combining marks in a row, in a text that a terminal shows."""
ADDRESSES_CHARACTERS = 4000
"""Characters of the list of a machine's addresses."""
SLURM_CHARACTERS = 300
"""Characters of one text that Slurm prints."""
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
KEY_LINE_CHARACTERS = 500
"""Characters of a log line that may name a host key: matching takes time with the square of its length."""
VAST_ID = 1 << 63
"""Largest id of an account."""
CLOCK_AHEAD_S = 366 * 86_400.0
"""Largest difference of two clocks, in seconds, that is believed."""
RETRY_AFTER_S = 120.0
"""Seconds that Vast may ask to be left alone before a call fails."""
VAST_USD = 1e9
"""Largest credit or charge, in USD."""
VAST_NUMBER = 1e12
"""Largest number in an answer from Vast."""
LABEL_CHARACTERS = 256
"""Characters of the label of a machine, a network or a volume."""
VAST_CHARACTERS = 4000
"""Characters of one text from Vast."""
GPU_GB = 1000.0
"""Largest memory of one GPU, in GB."""
PICTURES = 24
"""Pictures of one report."""
WANDB_FOLDERS = 20
"""Offline runs of W&B that a run's index names."""
DETAIL_CHARACTERS = 4000
"""Characters of a detail or an event in the ledger: some of it comes from a machine."""
TRANSCRIPT_LINE_BYTES = 1 << 22
"""Size of one line of a transcript, which may be a stranger's."""
TRANSCRIPT_LINES = 500_000
"""Lines of one transcript."""

EXCHANGES: Mapping[str, Allowance] = {
    "outputs": Allowance(items=FILES, memory=SMALL_FILES[layout.MANIFEST]),
    "checkpoint": Allowance(
        bytes=(32 << 20) + CHECKPOINT_MANIFEST + (8 << 10),
        items=FILES,
        seconds=2.0,
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

Of a machine: a download of all outputs, and a slice of a checkpoint during the training.
"""
