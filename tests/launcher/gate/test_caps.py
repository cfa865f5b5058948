"""The caps: what the most that each allows costs in memory, measured in a process of its own."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.launcher.gate.test_box_reader import status
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_box_status
from vastrun.launcher.gate.caps import Allowance, ExchangeBudget
from vastrun.launcher.gate.manifest import parse_manifest
from vastrun.launcher.gate.metrics import parse_records, parse_series

LAUNCHER = Path(caps.__file__).parents[1]
_CAP = re.compile(r"_?(MAX|MOST|LONGEST|LARGEST)(_|$)")
BESIDE: Mapping[str, str] = {
    "gate/rendezvous.py: _MAX_PORT": "a property of TCP",
    "ledger/postgres.py: _MAX_CONNECTIONS": "ours",
    "ledger/sql.py: MAX_MEASURED": "of our own rows that are read",
    "outputs/checkpoints.py: _MAX_KEPT": "of copies on this computer",
    "outputs/store.py: MAX_LOG_CHUNK_BYTES": "of one read of the log",
    "providers/docker/containers.py: _MAX_PROCESSES": "of a container, for its kernel",
    "providers/onstart.py: MAX_BYTES": "of a script that is sent",
    "providers/vast/account.py: _MAX_RETRY_S": "of our own retries",
    "providers/vast/offers.py: MAX_OFFERS": "asked for",
    "providers/vast/offers.py: _MAX_REASON": "as shown",
    "providers/vast/offers.py: _MAX_REASONS": "as shown",
    "ssh/transfers.py: _MAX_DISCARDED_BYTES": "of a response to our own request",
    "ssh/transfers.py: _MAX_SIZE_DIGITS": "of a line within REPLY_BYTES",
}
"""What has such a name and limits nothing that comes from outside."""
EXCHANGES_MB: Mapping[str, float] = {
    "outputs": 118,
    "checkpoint": 118,
    "registry": 110,
    "docker": 20,
    "docker answer": 110,
    "vast": 120,
    "vast list": 120,
    "ledger": 300,
    "slurm": 10,
}
"""MB that each exchange may add to the launcher's memory, with JSON that takes the most.

A ledger is the team's own, and as large as its runs are many."""
MEMORY_MB: Mapping[str, float] = {
    name: mb
    for mb, names in {
        0: (
            "NAME_BYTES PATH_BYTES PATH_FOLDERS READ_S SLICE_S LOG_BYTES LOGS STEPS LOSS MIN_LOSS "
            "PICTURE_PIXELS BOOT_STEPS COMBINING_MARKS ADDRESSES_CHARACTERS "
            "SLURM_CHARACTERS SLURM_NODES SLURM_NUMBER SLURM_REPLY_CHARACTERS REGISTRY_LABELS "
            "LAYER_BYTES KEY_LINE_CHARACTERS VAST_ID CLOCK_AHEAD_S RETRY_AFTER_S VAST_USD VAST_NUMBER "
            "SSH_COMMENT_CHARACTERS LABEL_CHARACTERS GPU_GB WANDB_FOLDERS DETAIL_CHARACTERS"
        ),
        1: "RANKS REPLY_BYTES VAST_LOG_BYTES REGISTRY_ENTRIES",
        2: "GREETING_BYTES LINE_CHARACTERS METRICS_NAMES",
        4: "FOLLOWED_BYTES METRICS_SLICE_BYTES PICTURE_BYTES REGISTRY_CHARACTERS",
        8: "VAST_CHARACTERS",
        30: "COMMAND_BYTES",
        40: "SERIES SERIES_LINES",
        48: "PICTURES",
        80: "METRICS_LINES",
        95: "FILES",
        100: "METRICS_VALUES",
        118: "SMALL_FILES CHECKPOINT_MANIFEST",
    }.items()
    for name in names.split()
}
"""MB that each cap may add to the launcher's memory, one at a time; 0: it bounds the disk, or no memory."""
MAX_MB = 120
"""A launcher takes some 80 MB by itself; with this it stays under 200."""
STATUS = Path("/proc/self/status")
ALLOWANCE = Allowance(bytes=100, items=3, seconds=2, memory=10)


def manifest(name: str = "a") -> bytes:
    """A manifest as long as it may be; a wide character in it makes all others as wide in memory."""
    path, most = "b" * 215, caps.SMALL_FILES[layout.MANIFEST]
    first = {"path": f"run/outputs/{name}", "size": 1, "sha256": "0" * 64}
    others = (
        f'{{"path":"run/outputs/{number:06d}/{path}","size":1,"sha256":"{number:064d}"}}'
        for number in range(caps.FILES - 1)
    )
    content = f'{{"files":[{json.dumps(first, ensure_ascii=False)},{",".join(others)}]}}'.encode()
    assert most * 0.9 < len(content) <= most
    return content


def _json(exchange: str) -> bytes:
    """An answer that takes the most memory: empty lists, or short texts where lists are counted, too."""
    allowance = caps.EXCHANGES[exchange]
    one = b'"ab",' if allowance.what.startswith("objects") else b"[],"
    return b"[" + one * ((int(allowance.memory) - 4) // len(one)) + b"0]"


def metrics(lines: int, names: int) -> Iterator[bytes]:
    """Lines of metrics with so many names each, beside a loss."""
    values = "".join(f', "gpu{number}/memory": 0.5' for number in range(names))
    for step in range(lines):
        yield f'{{"step": {step}, "loss": {step * 0.1:.3f}{values}}}'.encode()


CONTENTS: Mapping[str, Callable[[], bytes]] = {
    "SMALL_FILES": lambda: manifest("\U0001f600"),
    "FILES": manifest,
    "RANKS": lambda: status(range(caps.RANKS)).encode(),
    "SERIES_LINES": bytes,
    "METRICS_LINES": bytes,
    "METRICS_VALUES": bytes,
    **{name: partial(_json, name) for name in ("registry", "docker answer", "vast", "vast list")},
}
"""The most that a cap allows; bytes without any where it is made line by line."""
READERS: Mapping[str, Callable[[bytes], object]] = {
    "SMALL_FILES": parse_manifest,
    "FILES": parse_manifest,
    "RANKS": lambda content: parse_box_status(content.decode()),
    "SERIES_LINES": lambda _: parse_series(metrics(caps.SERIES_LINES, caps.SERIES)),
    "METRICS_LINES": lambda _: parse_records(metrics(caps.METRICS_LINES, 0)),
    "METRICS_VALUES": lambda _: (
        parse_records(metrics(200_000, 0)),
        parse_records(metrics(1000, caps.METRICS_NAMES)),
    ),
    **dict.fromkeys(("registry", "docker answer", "vast", "vast list"), json.loads),
}


def grown_mb(cap: str, file: str) -> float:
    """How much the peak of this process's memory grows by reading the file's content."""
    before = peak_mb()
    READERS[cap](Path(file).read_bytes())
    return peak_mb() - before


def peak_mb() -> float:
    """Not `getrusage`: that of a process counts the peak of the one that started it, too."""
    lines = STATUS.read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1000


def test_each_cap_says_what_it_may_cost_and_none_too_much() -> None:
    limits = {name for name in vars(caps) if name.isupper()} - {"EXCHANGES"}
    assert set(MEMORY_MB) == limits
    assert set(EXCHANGES_MB) == set(caps.EXCHANGES)
    costs = {**MEMORY_MB, **EXCHANGES_MB}
    assert max(mb for name, mb in costs.items() if name != "ledger") <= MAX_MB


def test_no_folder_that_reads_what_others_send_has_a_cap_beside_the_table() -> None:
    found = {
        f"{path.relative_to(LAUNCHER)}: {name}"
        for folder in ("gate", "image", "ledger", "outputs", "providers", "ssh")
        for path in (LAUNCHER / folder).rglob("*.py")
        if path.name != "caps.py"
        for name in _caps_in(path)
    }
    assert found == set(BESIDE)


def _caps_in(path: Path) -> Iterator[str]:
    """Names of numeric constants that begin as those of caps do."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Attribute | ast.Subscript):
            for target in ast.walk(node.targets[0]):
                if isinstance(target, ast.Name) and _CAP.match(target.id) and _is_number(node.value):
                    yield target.id


def _is_number(value: ast.expr) -> bool:
    return all(isinstance(one.value, int | float) for one in ast.walk(value) if isinstance(one, ast.Constant))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="a kernel that does not tell a process's peak")
@pytest.mark.parametrize("cap", READERS)
def test_the_most_that_a_cap_allows_costs_what_its_row_says(cap: str, tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(CONTENTS[cap]())
    program = f"from tests.launcher.gate.test_caps import grown_mb; print(grown_mb({cap!r}, {str(file)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= {**MEMORY_MB, **EXCHANGES_MB}[cap], done.stdout


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budget(clock: FakeClock) -> ExchangeBudget:
    return ExchangeBudget(ALLOWANCE, now=clock.now)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({"size": 100}, "100 bytes"),
        ({"items": 3}, "3 files"),
        ({"memory": 10}, "10 bytes to be read at once"),
    ],
)
def test_all_may_be_spent_and_no_more(budget: ExchangeBudget, spent: dict[str, float], words: str) -> None:
    budget.spend(**spent)
    with pytest.raises(BoxError, match=f"the machine sent more than {words}"):
        budget.spend(**dict.fromkeys(spent, 1))


def test_it_is_late_once_its_seconds_are_over(budget: ExchangeBudget, clock: FakeClock) -> None:
    clock.sleep(1.9)
    assert not budget.is_late
    clock.sleep(0.1)
    assert budget.is_late


def test_whoever_ends_the_exchange_is_asked_before_anything_is_spent(clock: FakeClock) -> None:
    def ends() -> None:
        raise InterruptedError

    budget = ExchangeBudget(ALLOWANCE, check=ends, now=clock.now)
    for spend in (budget.check, budget.spend, lambda: budget.spend(size=1000)):
        with pytest.raises(InterruptedError):
            spend()
