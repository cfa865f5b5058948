"""A machine that does not start costs the user nothing but a few seconds: the next one trains."""

from __future__ import annotations

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["wrong_gpu", "never_scheduled"])
def test_the_job_is_trained_on_the_next_machine(rented: Terminal, vast: VastEmulator, fault: str) -> None:
    vast.faults.add(fault)
    done = rented.type(
        *("launch", str(JOBS / "script.yaml"), "--provider", "vast", "-y"),
        *("--set", "limits.usd=1", "--set", "ranks=1", "--json", *WITH_STUB_TORCH),
    )

    assert done.exit_code == 0, done.err
    end = done.json()
    assert [attempt["verdict"] for attempt in end["attempts"]] == ["FAILED", "SUCCEEDED"]
    first, second = rented.type("hosts", "--json").json()["hosts"]
    assert (first["failures"], first["avoided"]) == (1, "machine")
    assert (second["failures"], second["avoided"]) == (0, None)
    assert len(vast.instances) == 0
