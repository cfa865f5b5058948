"""Data of this computer over a line that counts: what was cut is continued, what is there is not sent."""

import random
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.emulators.cable import Cable
from tests.jobs import command_job
from tests.launcher.bundle.bundles import run_of
from tests.launcher.ssh.machine import Machine
from vastrun.contract import layout
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.local_data import LocalData
from vastrun.launcher.core.job import DataFile
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.steps import send_data

SIZES = [6_000_000, *[20_000] * 300, 0, 7]
TOTAL = sum(SIZES)


class KilledError(Exception):
    """The launcher is killed."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(1)
    for number, size in enumerate(SIZES):
        path = tmp_path / "data" / f"{number % 7}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(size))
    (tmp_path / "data" / "link").symlink_to("0/0.bin")
    return tmp_path / "data"


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_upload_that_is_killed_twice_sends_each_byte_once_and_a_slot_beside_none(
    machine: Machine, cable: Cable, folder: Path, tmp_path: Path
) -> None:
    spec = replace(command_job(), data=(DataFile(path=str(folder)),))

    def send(box: Path, check: Callable[[], None] = lambda: None) -> None:
        with Bundler({}, data=LocalData(tmp_path / "state")) as bundler:
            kept = bundler.keep_code(spec)
            run = run_of(kept)
            with tarfile.open(bundler.pack(run, kept).path) as archive:
                archive.extractall(box, filter="data")
            shared = {"VASTRUN_SHARED_DATA": str(machine.box / layout.SHARED_DATA)}
            env = {"VASTRUN_BOX": str(box), "VASTRUN_PYTHON": sys.executable, **shared}
            shell = replace(machine, box=box).shell(cable.address, env=env)
            shell.set_interrupt_check(check)
            contents = bundler.data_contents(run, kept)
            assert contents is not None
            drive = SimpleNamespace(run=run, spec=kept, services=SimpleNamespace(packer=bundler))
            drive.now, drive.report, drive.remote = float, str, (lambda: shell)
            drive.is_stopping = bool
            try:
                send_data(cast("RunContext", drive), contents)
            finally:
                shell.close()

    def killed_at(share: float) -> Callable[[], None]:
        def check() -> None:
            if cable.carried > share * TOTAL:
                raise KilledError

        return check

    cable.delay_s = 0.002
    for share in (0.3, 0.7):
        with pytest.raises(KilledError):
            send(machine.box, killed_at(share))
    send(machine.box)
    assert cable.carried < 1.05 * TOTAL
    assert contents_of(machine.box / "data" / "data") == contents_of(folder)

    before, slot = cable.carried, tmp_path / "slot"
    slot.mkdir()
    send(slot)
    send(machine.box)
    assert cable.carried - before < 0.01 * TOTAL
    assert contents_of(slot / "data" / "data") == contents_of(folder)
