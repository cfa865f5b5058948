"""Answers that others recorded on the live service are understood, over HTTP as Vast sends them."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.http_servers import QuietHandler, serving
from tests.launcher.providers.vast.recorded import CREATES, REFUSALS, RecordedAnswer
from tests.launcher.providers.vast.rentals import LABEL
from tests.offers import rental_order, rtx_4090
from vastrun.launcher.core import Charge
from vastrun.launcher.core.errors import ProviderError, VastrunError
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.errors import Answer, map_error
from vastrun.launcher.providers.vast.rows import parse_charge
from vastrun.launcher.providers.vast.transport import VastAccount
from vastrun.testing.setup import LEASE

RICH = RecordedAnswer(body={"id": 1, "credit": 100.0})
ORDER = rental_order(rtx_4090(id="200", host="39273"), env=LEASE, max_usd=0.1)


@contextmanager
def answering(tmp_path: Path, answers: Mapping[str, RecordedAnswer]) -> Iterator[VastProvider]:
    """A provider to whose requests a Vast answers so, by a pattern of method and path."""

    class Handler(QuietHandler):
        def tell(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = f"{self.command} {self.path}"
            recorded = next(one for pattern, one in answers.items() if re.search(pattern, asked))
            self.answer(recorded.status, json.dumps(recorded.body).encode(), Content_Type="application/json")

        do_GET = do_PUT = do_POST = do_DELETE = tell

    with serving(Handler) as url:
        account = VastAccount(key="key", server=url)
        yield VastProvider(account, tmp_path, clock=FakeClock(time.time()))


def row_of(machine_id: str) -> RecordedAnswer:
    """That machine, as its id shows it."""
    row = {"id": int(machine_id or 0), "cur_state": "running", "dph_total": 0.15, "label": LABEL}
    return RecordedAnswer(body={"instances": row})


@pytest.mark.parametrize("name", CREATES)
def test_a_recorded_create_is_a_machine_or_none(name: str, tmp_path: Path) -> None:
    recorded, machine_id = CREATES[name]
    answers = {
        "GET .*/users/current": RICH,
        "PUT .*/asks/": recorded,
        r"GET .*/instances/\d": row_of(machine_id),
        "GET .*/instances/": RecordedAnswer(body={"instances": [], "total_instances": 0}),
    }
    with answering(tmp_path, answers) as provider:
        if recorded.error is None:
            assert provider.rent(ORDER).id == machine_id
            return
        with pytest.raises(recorded.error, match=recorded.text):
            provider.rent(ORDER)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_recorded_refusal_is_the_error_that_it_means(name: str) -> None:
    recorded = REFUSALS[name]
    answer = Answer(status=recorded.status, text=json.dumps(recorded.body), headers={})
    error = map_error(answer, calls.show_instance("7"))
    assert isinstance(error, recorded.error or ())
    assert recorded.text in str(error)
    assert answer.retry_after_s() == recorded.retry_after_s


@pytest.mark.parametrize("name", [name for name, one in REFUSALS.items() if one.status >= 400])
def test_a_recorded_refusal_reaches_the_caller(name: str, tmp_path: Path) -> None:
    recorded = REFUSALS[name]
    with answering(tmp_path, {"": recorded}) as provider, pytest.raises(VastrunError) as caught:
        provider.instances()
    assert isinstance(caught.value, recorded.error or ())


def test_a_machine_whose_host_is_offline_is_not_taken_for_destroyed(tmp_path: Path) -> None:
    offline = RecordedAnswer(body={"success": False, "msg": "host offline"})
    refused = pytest.raises(ProviderError, match="host offline")
    with answering(tmp_path, {"DELETE ": offline}) as provider, refused:
        provider.destroy("7")


def test_a_recorded_key_is_attached(tmp_path: Path) -> None:
    attached = RecordedAnswer(body={"success": True, "msg": "SSH key attached successfully"})
    with answering(tmp_path, {"POST .*/ssh/": attached}) as provider:
        provider.api.attach_key("7", "ssh-ed25519 AAAA")


def _item(kind: str, description: str, usd: float) -> dict[str, Any]:
    day = {"start": 1786924800, "end": 1786924800}
    return {**day, "type": kind, "source": None, "description": description, "amount": usd, "metadata": {}}


CHARGE = {
    "source": "instance-47912530",
    "amount": 0.123,
    "description": "Instance 47912530 Charges - 1 day",
    "type": "instance",
    "start": 1786924800,
    "end": 1786924800,
    "items": [
        _item("gpu", "GPU", 0.112),
        _item("disk", "disk", 0.011),
        _item("bwd", "0.0 GB Downloaded", 0.0),
        _item("bwu", "0.0 GB Uploaded", 0.0),
    ],
    "metadata": {"label": "job-a"},
}
"""Of 2026-08: one row for a day, whose start and end are the same midnight."""


def test_a_recorded_charge_is_read() -> None:
    assert parse_charge(CHARGE) == Charge(
        instance_id="47912530", label="job-a", usd=0.123, storage_usd=0.011, until=1786924800.0 + 86400.0
    )
