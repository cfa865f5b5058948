"""A run with two nodes on an emulated Vast: each fault of its overlay network, and nothing is left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.fast_launcher import PRINTS, FastLauncher, job
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import JOBS, Terminal
from tests.e2e.test_nodes import losses
from tests.emulators.faults import FAULTS, NETWORK
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from vastrun.launcher.core import Cause

CLUSTER = 7


def cluster(count: int) -> Sequence[Machine]:
    """Machines of one cluster, and two that belong to none and cost less."""
    alone, others = machines(count + 2)[:2], machines(count + 2)[2:]
    return [
        *(replace(one, gpu_usd=0.01) for one in alone),
        *(replace(one, cluster_id=CLUSTER) for one in others),
    ]


@dataclass(frozen=True)
class Case:
    """A fault, and how the job ends in spite of it or because of it."""

    name: str
    causes: tuple[Cause | None, ...] = (None,)
    """Of the job's first runs, in order; None is a success."""
    exit_code: int = 0
    rented: int = 2
    """How many machines were had, in all."""
    left: int = 0
    """How many overlays stay."""
    times: int = 1
    said: str = ""

    def __str__(self) -> str:
        return self.name if self.times == 1 else f"{self.name} x{self.times}"


CASES = (
    Case("overlays_off", (Cause.NO_OFFER,), 8, rented=0, said="Vast has none for this account"),
    Case("overlay_read_denied", (Cause.PROVIDER,), 5, rented=0, said="may not use overlay networks"),
    Case("overlay_denied", (Cause.PROVIDER,), 5, rented=0, said="may not use overlay networks"),
    Case("overlay_made_unsaid"),
    Case("join_refused", (Cause.PROVIDER,), 5, rented=0, said="may not join overlay"),
    Case("no_interface", (Cause.HOST, None), rented=4, said="no interface on 127.0.0.0/8"),
    Case("overlay_stays"),
    Case("overlay_stays", left=1, times=99, said="`vastrun reap` removes it"),
    Case("overlay_in_use", left=1, times=99, said="`vastrun reap` removes it"),
)


QUICK = [case for case in CASES if case.name == "join_refused"]
"""One that rents nothing: the others train, on two machines."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_fault_of_an_overlay(case: Case, tmp_path: Path) -> None:
    with FastLauncher(tmp_path, market=cluster(5)) as launcher:
        launcher.strike(case.name, times=case.times)
        spec = job(PRINTS)
        # Without torch there is no all-reduce.
        spec = replace(spec, nodes=2, resources=replace(spec.resources, link_mbps=0.0))
        runs = launcher.launch(spec)[::-1]
        story = "\n".join(map(repr, launcher.screen.events))

        assert case.name in launcher.vast.faults.struck, story
        assert len(launcher.vast.instances) == 0, story
        assert len(launcher.vast.overlays) == case.left, story
        assert len(launcher.vast.billing.meters) == case.rented, story
    causes = [run.cause for run in runs]
    assert causes[: len(case.causes)] == list(case.causes), story
    assert runs[-1].exit_code() == case.exit_code
    assert case.said in story


def test_every_fault_of_an_overlay_has_its_case() -> None:
    assert {case.name for case in CASES} == {name for name, (where, _) in FAULTS.items() if where == NETWORK}


STEPS = 10
JOB = (
    *("launch", str(JOBS / "learn.yaml"), "--set", f"train.steps={STEPS}", "--set", "train.log_every=1"),
    *("--set", "train.checkpoint_every=4", "--set", "limits.stall_s=120"),
)
ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y", "--set", "nodes=2", "--set", "ranks=2")
SLOW_LINK = ("--set", "resources.link_mbps=10")
"""A computer with much to do is no fast network."""


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(cluster(2), pace=LOADING) as vast:
        yield vast


@pytest.mark.slow
@pytest.mark.torch
def test_two_machines_on_an_overlay_learn_as_one_of_four_ranks_and_leave_nothing(
    rented: Terminal, vast: VastEmulator
) -> None:
    assert rented.type(*JOB, "--set", "ranks=4", "--out", "one").exit_code == 0
    for strategy in ("ddp", "fsdp2"):
        done = rented.type(
            *JOB, *ON_VAST, *SLOW_LINK, "--set", f"train.strategy={strategy}", "--out", strategy
        )

        assert done.exit_code == 0, done.err
        assert len(losses(rented, strategy)) == STEPS
        assert losses(rented, strategy) == pytest.approx(losses(rented, "one"), abs=1e-6)
        assert "[n1] supervisor " in done.err
        assert (len(vast.instances), len(vast.overlays)) == (0, 0)
    saved = rented.folder / "fsdp2" / "checkpoints" / f"step-{STEPS:06d}"
    assert len(list(saved.glob("*.distcp"))) == 4, "the shards of both machines"
    assert "all-reduce 2 nodes gloo 16 MB: " in done.err


@pytest.mark.slow
@pytest.mark.torch
def test_nodes_whose_link_is_too_slow_are_given_back_before_data_is_fetched(
    rented: Terminal, vast: VastEmulator
) -> None:
    done = rented.type(*JOB, *ON_VAST, "--set", "resources.link_mbps=1e9", "--out", "out")
    assert done.exit_code == 5, done.err
    assert "check-nodes failed: all-reduce 2 nodes gloo 16 MB: only " in done.out + done.err
    assert "40-data" not in done.err
    assert rented.type("status", "last", "--json").json()["run"]["cause"] == "communication"
    assert (len(vast.instances), len(vast.overlays)) == (0, 0)


@pytest.mark.slow
def test_a_plan_for_nodes_without_a_cluster_says_why_and_what_could_be_had(tmp_path: Path) -> None:
    with VastEmulator(machines(4)) as vast:
        terminal = Terminal(tmp_path, **vast.variables)
        for command in ("plan", "launch"):
            words = (command, str(JOBS / "learn.yaml"), "--provider", "vast", "--set", "limits.usd=1")
            done = terminal.type(*words, "--set", "nodes=2", *(["-y"] if command == "launch" else []))
            assert done.exit_code == 8, done.err
            assert "NAT, where NCCL and gloo cannot work" in done.err
            assert "--set nodes=1" in done.err
        assert len(vast.billing.meters) == 0
        assert ("POST", "/api/v0/overlay/") not in vast.requests
