"""Every fault of the emulated Vast, alone: its cause, its exit code, and nothing stays rented."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.exits import exit_code_of
from launcher.model import Cause
from tests.e2e.hurried import PRINTS, WAITS, WORKS, Hurried, job
from tests.emulators.faults import FAULTS

pytestmark = pytest.mark.torch

NEVER_MET = {
    "start_refused": "no machine that was stopped is started again",
    "exited_lag": "no machine that was stopped is started again",
    "invalid_token": "one page holds all of our machines",
}
TOO_SLOW = {"ssh_silent": "the time limits of an SSH connection cannot be hurried"}


@dataclass(frozen=True)
class Case:
    """A fault, and how the job ends in spite of it or because of it."""

    name: str
    causes: tuple[Cause | None, ...] = (None,)
    """Of the job's first runs, in order; None is a success."""
    endpoint: str | None = None
    seconds: float | None = None
    times: int = 1
    program: str = PRINTS
    interruptible: bool = False
    factor: float = 5.0
    hours: float = 1.0

    def __str__(self) -> str:
        return "-".join(filter(None, [self.name, self.endpoint]))


EXIT_CODES = {
    None: 0,
    Cause.USER_ERROR: 5,
    Cause.PROVIDER: 5,
    Cause.HOST: 5,
    Cause.PREEMPTED: 7,
    Cause.LOST: 7,
    Cause.NO_OFFER: 8,
    Cause.TIME_LIMIT: 9,
}

HOST = (Cause.HOST, None)
"""The machine is to blame: the job goes on to another one."""

CASES = (
    Case("too_many_requests"),
    Case("too_many_requests_json", endpoint="create"),
    Case("too_many_requests_header", endpoint="destroy"),
    Case("server_error", endpoint="create"),
    Case("server_error", endpoint="list_instances"),
    Case("bad_gateway", endpoint="destroy"),
    Case("bad_gateway_done", endpoint="create"),
    Case("bad_gateway_done", endpoint="destroy"),
    Case("no_answer", endpoint="create"),
    Case("no_answer_done", endpoint="create"),
    Case("slow_answer", endpoint="create", seconds=1.0),
    Case("not_json", endpoint="list_instances"),
    Case("invalid_key", (Cause.PROVIDER,), endpoint="search"),
    Case("two_factor", (Cause.PROVIDER,), endpoint="search"),
    Case("no_such_ask"),
    Case("unknown_ask"),
    Case("no_such_ask_400"),
    Case("insufficient_credit", (Cause.PROVIDER,)),
    Case("spend_rate_limit", (Cause.PROVIDER,)),
    Case("bid_too_low", interruptible=True),
    Case("created_stopped"),
    Case("stuck_loading", (Cause.HOST,), factor=200.0),
    Case("slow_loading", seconds=20.0),
    Case("never_scheduled", HOST),
    Case("oci_failure", HOST),
    Case("image_not_found", (Cause.USER_ERROR,)),
    Case("pull_denied", (Cause.USER_ERROR,)),
    Case("pull_eof", HOST),
    Case("pull_no_space", HOST),
    Case("build_failure", HOST),
    Case("onstart_skipped", (Cause.HOST,), factor=20.0),
    Case("onstart_by_sh"),
    Case("no_container_key", HOST),
    Case("log_noise"),
    Case("wrong_gpu", HOST),
    Case("fewer_gpus"),
    Case("small_disk", HOST),
    Case("low_memory"),
    Case("old_driver", HOST),
    Case("higher_price", HOST),
    Case("malformed_row"),
    Case("no_ports"),
    Case("status_lag"),
    Case("ssh_late", seconds=20.0),
    Case("slow_network"),
    Case("ssh_refused", (Cause.HOST,), factor=40.0),
    Case("ssh_denied"),
    Case("ssh_impostor", HOST, factor=10.0),
    Case("logs_late"),
    Case("proxy_refused"),
    Case("direct_refused"),
    Case("direct_silent"),
    Case("outbid", (Cause.PREEMPTED,), seconds=15.0, program=WAITS, interruptible=True),
    Case("host_offline", (Cause.TIME_LIMIT,), seconds=15.0, program=WAITS, hours=0.01),
    Case("no_heartbeat", program=WORKS),
    Case("frozen", program=WORKS),
    Case("container_exits", (Cause.LOST,), seconds=15.0, program=WAITS),
    Case("network_cut", seconds=20.0, program=WORKS),
    Case("credit_zero", (Cause.PROVIDER,), seconds=15.0, program=WAITS),
    Case("contract_end", (Cause.LOST,), seconds=15.0, program=WAITS),
    Case("destroy_delayed", seconds=10.0),
    Case("destroy_ignored"),
    Case("row_reappears"),
    Case("empty_list"),
    Case("search_quota", (Cause.PROVIDER,)),
    Case("no_offers", (Cause.NO_OFFER,), times=99),
    Case("filters_ignored"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault(case: Case, tmp_path: Path) -> None:
    with Hurried(tmp_path, factor=case.factor) as hurried:
        hurried.vast.faults.add(case.name, endpoint=case.endpoint, seconds=case.seconds, times=case.times)
        spec = job(case.program, interruptible=case.interruptible, hours=case.hours)
        runs = hurried.launch(spec)[::-1]
        story = "\n".join(map(repr, hurried.screen.events))

        assert case.name in hurried.vast.faults.struck, story
        assert len(hurried.vast.instances) == 0, story
    causes = [run.cause for run in runs]
    assert causes[: len(case.causes)] == list(case.causes), story
    assert exit_code_of(runs[-1]) == EXIT_CODES[causes[-1]]


def test_every_fault_has_its_case() -> None:
    assert {case.name for case in CASES} | {*NEVER_MET, *TOO_SLOW} == set(FAULTS)
