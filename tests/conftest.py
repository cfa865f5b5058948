"""Tests at once; what a computer cannot run is skipped, and said at the end; in CI nothing is. A database."""

import gc
import os
import random
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests import forked_workers, parts
from tests.emulators import slurm
from tests.launcher.ledger.postgres import PostgresServer, served
from tests.trainer.telemetry.wandb_server import WandbServer, serving_wandb

_MEMORY = Path("/dev/shm")
_ROOM = 12 << 30
"""Jobs of the tests ask for 8 GB; passed tests leave nothing."""
_WHERE_THEY_WAIT = (Path(__file__).parent / "e2e", Path(__file__).parent / "onstart")
_WAITING_ENDS = 0.9
"""Of a worker's tests: the last one of all should not be one that waits, while the others have ended."""
_CASES: defaultdict[str, Iterator[int]] = defaultdict(count)
_ENDED = count(1)
_SETTLED = 200
"""After so many tests, what is still there will stay."""

# Tests that train in this process share the cores with others, whose threads would spin while they wait.
# It is read when torch is first imported: by whichever test module comes first.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Four more than there are cores: many tests wait, for a box, a server or a rank."""
    return 4 + (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers from one process that has imported all tests."""
    if forked_workers.are_of_use(config):
        source = forked_workers.WorkerSource(config)
        config.add_cleanup(source.close)
        for spec in specs:
            if spec.popen and not spec.python:
                spec.python = source.python


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="K/N", help="Take the K-th of N parts of the tests.")


def pytest_configure() -> None:
    """Tests write where no disk is waited for, if there is room.

    What is imported is no garbage: until all is, none is looked for. What a shell starts beside itself
    ignores Ctrl-C, and below `nohup` a lost terminal; tests send both.
    """
    gc.disable()
    # How long an example takes is a benchmark's business: a busy computer fails no test.
    unhurried = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", unhurried)
    settings.load_profile("patient")
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def pytest_unconfigure() -> None:
    slurm.end_shared()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Who changes a line needs no scheduler, daemon or browser: their tests are of `make integration`."""
    for mark in item.iter_markers("sampled"):
        cases = _CASES[item.nodeid.partition("[")[0]]
        if next(cases) % mark.args[0]:
            item.add_marker("slow")
    needed = (parts.PARTS[name] for mark in item.iter_markers("needs") for name in mark.args)
    if any(part.is_system for part in needed):
        item.add_marker("integration")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take one part; spread those that wait most between the others, which keep the cores busy meanwhile."""
    number, count = map(int, config.getoption("part").split("/"))
    by_part: dict[int, list[pytest.Item]] = {part: [] for part in range(1, count + 1)}
    for item in items:
        by_part[crc32(item.nodeid.encode()) % count + 1].append(item)
    items[:] = by_part.pop(number)
    config.hook.pytest_deselected(items=[item for part in by_part.values() for item in part])
    waiting = [item for item in items if item.path.parent in _WHERE_THEY_WAIT]
    random.Random(0).shuffle(waiting)  # long ones and short ones; the same for every worker
    others = (item for item in items if item.path.parent not in _WHERE_THEY_WAIT)
    spread: list[pytest.Item] = []
    begun = 0
    for _, file in groupby(others, key=lambda item: item.path):
        due = round(len(waiting) * _share_begun(len(spread) / len(items)))
        spread += [*waiting[begun:due], *file]
        begun = due
    items[:] = [*spread, *waiting[begun:]]


def _share_begun(done: float) -> float:
    """Of the tests that wait, once `done` of all were begun: each worker's share ends with others."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    whole, part = divmod(done * workers, 1)
    return (whole + min(1.0, part / _WAITING_ENDS)) / workers


def pytest_collection_finish() -> None:
    """Look for garbage again, but not in what was imported, which takes half a second each time."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Nor, now and then, in what tests have imported or keep for each other: many end with such a search."""
    if next(_ENDED) % _SETTLED == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test needs is looked for before anything is made for it."""
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            parts.require(part)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a worker."""
    parts.require("postgresql")
    with served() as server:
        yield server


@pytest.fixture
def wandb() -> Iterator[WandbServer]:
    pytest.importorskip("wandb")
    with serving_wandb() as server:
        yield server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with one bucket, and a client of it."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    import boto3

    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # What it keeps outlives the server, for as long as the process.
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="models")
    yield client
    server.stop()
