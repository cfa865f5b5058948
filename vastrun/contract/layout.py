"""Layout: the path of every file on a box, relative to its folder; docs/box.md explains each.

Standard library only: the launcher, the supervisor and the ranks all read it.
"""

import re
import unicodedata

LEASE_SCRIPT = "lease.sh"
LEASE_STATE = "lease.state"
LEASE_LOG = "lease.log"
ONSTART_ERRORS = "onstart.err"

INBOX_BUNDLE = "inbox/bundle.tar.gz"
INBOX_SECRETS = "inbox/secrets.env"
DATA_PACK = "inbox/data/pack"
SHIPPED = "shipped"
NODE_ENV = "node.env"

JOB = "job.json"
DATA_LIST = "data.jsonl"
ONSTART = "onstart"
REARM = "onstart/rearm.sh"
DEADLINE = "onstart/deadline.sh"
PACKAGES = "pkg"
CODE_ARCHIVE = "code.tar.gz"
CODE = "code"
OVERLAY = "python"
"""Environment of the set-up commands on a computer whose own Python is left as it is."""
FILES_BEFORE = "files-before.json"
PULL = "pull"
RESUME = "resume"
DATA = "data"
OUTBOX = "outbox"

SLOTS = "slots"
HELD_MACHINE = "slots/.machine.json"
DRAINED = "slots/.drained"
SLOT_ORDERS = "slots/.orders"
SLOT_RECORD = "slot.json"
SLOT_ENVIRONMENT = "slot.env"
SLOT_SCRIPT = "onstart/slot.sh"
MEMORY_EVENTS = "memory.events"
SHARED_DATA = "shared-data"

RUN_LOCK = "run.lock"
STEP = "step"
STOP = "stop"
COLLECTED = "collected"

RUN = "run"
EXIT = "run/exit"
STEPS = "run/steps.jsonl"
PREFLIGHT = "run/preflight.json"
LOG = "run/run.log"
STATUS = "run/status.json"
OUTCOME = "run/outcome.json"
FINAL = "run/final.json"
STAGE = "run/stage.json"
STAGES = "run/stages.json"
METRICS = "run/metrics.jsonl"
WANDB = "run/wandb.json"
WANDB_FILES = "run/wandb"
MLFLOW_FILES = "run/mlruns"
TENSORBOARD = "run/tensorboard"
HEARTBEATS = "run/heartbeat"
RANKS = "run/ranks"
AGENT = "run/ranks/agent.json"
PLAN = "run/plan.json"
STARTS = "run/starts"
RAW_LOGS = "run/raw"
AGENT_LOG = "run/raw/agent.log"
SPARE_AGENT = "tmp/spare-agent"
STACKS = "run/stacks"
FLIGHT_RECORDER = "run/flight-recorder"
RECORDER_PIPES = "tmp/flight-recorder"
CHECKPOINTS = "run/checkpoints"
OUTPUTS = "run/outputs"
EVALUATION = "run/report"
PROFILES = "run/profile"
MANIFEST = "run/manifest.json"

_VCS_NAMES = frozenset({".bzr", ".git", ".gitattributes", ".gitignore", ".gitmodules", ".hg", ".jj", ".svn"})
"""Names that control programs on the user's computer: git runs commands of its folder."""
_VCS_SHORT_PREFIXES = ("git~", "gitatt~", "gitign~", "gitmod~")
"""Prefixes of the short names (8.3) that Windows uses for the same files."""
_TERMINAL_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that change what a terminal shows: control characters and changes of writing direction."""


def should_download(name: str) -> bool:
    """Tell whether a file or folder of this name may be downloaded to the user's computer.

    Some file systems treat other spellings as the same name: other case, dots and spaces at the end,
    characters without width. All spellings of a forbidden name are rejected.
    """
    # Cf: characters without width, which HFS+ ignores in names.
    bare = name
    if not name.isascii():
        bare = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    bare = bare.casefold().rstrip(". ")
    return not (bare in _VCS_NAMES or bare.startswith(_VCS_SHORT_PREFIXES) or _TERMINAL_CONTROLS.search(name))
