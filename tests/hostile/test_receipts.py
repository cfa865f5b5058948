"""What a machine says that it lacks of the data that it is sent: in any case the run and its machine end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.hostile.lie import STEERING
from tests.launcher.world import World
from vastrun.launcher.core import Cause, DataContents, Phase, UserRequest


def says(**changes: Any) -> str:
    return json.dumps({"missing": [0, 1], "at": 0, "waits": False, "damaged": None} | changes)


LIES = {
    "nothing": "",
    "no object": "[]",
    "steering": says(missing=STEERING),
    "contents that are none": says(missing=[0, 2]),
    "contents before the first": says(missing=[-1]),
    "one content many times": says(missing=[1] * 100_000),
    "contents in disorder": says(missing=[1, 0]),
    "more bytes than the content has": says(at=11),
    "fewer bytes than none": says(at=-1),
    "bytes beyond any number": says().replace('"at": 0', '"at": 1e999'),
    "damage to what is none": says(damaged=2),
    "never enough": says(),
    "another run for ever": says(waits=True),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_missing_data_ends_the_run_and_the_machine(lie: str, tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(receipts=(LIES[lie],)))
    world.packer.data = DataContents(sizes=(10, 20))
    run = world.launch()
    assert run.phase is Phase.ENDED
    assert run.cause is not None
    assert world.rented() == 0


def test_data_that_are_there_are_not_sent_and_others_are_waited_for(tmp_path: Path) -> None:
    receipts = says(waits=True), says(), says(missing=[1], at=5), says(missing=[])
    world = World(tmp_path, training=Training(receipts=receipts))
    world.packer.data = DataContents(sizes=(10, 20), withheld=("/x/.env",))
    assert world.launch().cause is None
    told = [event.text for event in world.screen.events]
    assert "0.0 MB of data are there, 0.0 MB of them sent now" in told
    assert "not sent, since they hold credentials: /x/.env" in told


def test_stop_ends_an_upload_between_two_packs(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(receipts=(says(waits=True),)))
    world.packer.data = DataContents(sizes=(10, 20))
    world.user_requests.at = {world.clock.now() + 60: UserRequest.STOP}
    run = world.launch()
    assert (run.cause, run.detail) == (Cause.STOPPED, "stopped before it could ship")
    assert world.rented() == 0
