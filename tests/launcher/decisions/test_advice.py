"""Advice that names a command is followed, in the situation in which it is given: the command has to help."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import command_job, train_job
from tests.launcher.terminal import CRASH, HANG, Terminal
from tests.runs import a_run
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, Reason
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.core.job import Resources
from vastrun.launcher.decisions.advice import (
    ADVICE,
    HOLD_ADVICE,
    SLOT_ADVICE,
    advice_for,
    advice_for_rehearsal,
)
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.pool.held_machines import hold_spec

_COMMAND = re.compile(r"vastrun (?:[a-z][^;()`]*)")
_PIP = "ERROR: No matching distribution found for nosuch"


def ended(reason: Reason, detail: str = "", stop_cause: str | None = None) -> Training:
    """A training whose evidence says so."""

    def spoilt(outcome: Outcome) -> Outcome:
        return replace(outcome, reason=reason, detail=detail, stop_cause=stop_cause, final_record=False)

    return Training(outcome=spoilt, exit_code=1)


def failed_step(step: str, *lines: str, exit_code: int = 1) -> Training:
    """No training: an onstart step failed, after it wrote these lines."""
    end = {"step": step, "exit_code": exit_code, "seconds": 1.0, "last_line": lines[-1]}
    log = "".join(f"1800000001.000 {step} {line}\n" for line in lines)
    return Training(
        writes_outcome=False,
        exit_code=exit_code,
        leaves={layout.STEPS: json.dumps(end).encode() + b"\n", layout.LOG: log.encode()},
    )


_WELL = Training()


@dataclass(frozen=True, kw_only=True)
class Situation:
    """How a run comes to its cause, and what following its advice has to show."""

    training: Training = _WELL
    prepare: Callable[[Terminal], object] = Terminal.machines
    shows: str = ""
    options: tuple[str, ...] = ()


def _no_offers(terminal: Terminal) -> None:
    terminal.market.taken = {f"offer-{n}" for n in range(1, 8)}


def _refuses(terminal: Terminal) -> None:
    def rent(order: object) -> object:
        raise ProviderError("HTTP 400: no such template")

    terminal.market.rent = rent  # type: ignore[assignment, method-assign]


SITUATIONS: Mapping[str, tuple[Cause, Situation]] = {
    "pip fails": (
        Cause.SETUP,
        Situation(
            training=failed_step(
                "30-unpack", "$ pip install nosuch", _PIP, "set-up failed with exit code 1: pip"
            ),
            shows=_PIP,
        ),
    ),
    "an image for the CPU": (
        Cause.SETUP,
        Situation(
            training=failed_step("20-check-comm", "torch is built for the CPU only", exit_code=78),
            shows="20-check-comm torch is built for the CPU only",
        ),
    ),
    "data that cannot be made": (
        Cause.DATA,
        Situation(
            training=failed_step("40-data", "no room for the grid"), shows="40-data no room for the grid"
        ),
    ),
    "a GPU that is broken": (
        Cause.HOST,
        Situation(training=failed_step("10-check-gpu", "GPU 1: faulty memory")),
    ),
    "a rank crashes": (Cause.SIGNAL, Situation(training=CRASH, shows="the end")),
    "data that a rank cannot read": (Cause.DATA, Situation(training=ended("data"), shows="the end")),
    "a program fails": (Cause.USER_ERROR, Situation(training=ended("error"), shows="SUCCEEDED")),
    "memory runs out": (Cause.OUT_OF_MEMORY, Situation(training=ended("oom"))),
    "ranks cannot talk": (Cause.COMMUNICATION, Situation(training=ended("communication"))),
    "a training diverges": (Cause.DIVERGED, Situation(training=ended("diverged"), shows="SUCCEEDED")),
    "a stage misses its gate": (
        Cause.GATE_MISSED,
        Situation(training=ended("gate_missed"), shows="SUCCEEDED"),
    ),
    "the disk is full": (Cause.DISK, Situation(training=ended("disk"))),
    "a rank hangs": (Cause.HANG, Situation(training=HANG)),
    "it is stopped": (Cause.STOPPED, Situation(training=ended("stopped"), shows="SUCCEEDED")),
    "time is up": (
        Cause.TIME_LIMIT,
        Situation(training=ended("stopped", stop_cause="time_limit"), shows="SUCCEEDED"),
    ),
    "money is up": (
        Cause.MONEY_LIMIT,
        Situation(training=ended("stopped", stop_cause="money_limit"), shows="SUCCEEDED"),
    ),
    "no offer can be rented": (Cause.NO_OFFER, Situation(prepare=_no_offers, shows="GPU")),
    "the provider refuses": (Cause.PROVIDER, Situation(prepare=_refuses, shows="no such template")),
    "a proof is missing": (
        Cause.UNPROVEN,
        Situation(training=Training(outcome=lambda o: replace(o, loss_finite=None)), shows="the end"),
    ),
    "the evidence contradicts itself": (
        Cause.CONTRADICTION,
        Situation(training=Training(outcome=lambda o: replace(o, steps_done=3)), shows="the end"),
    ),
    "a step of ours fails": (
        Cause.INTERNAL,
        Situation(training=failed_step("50-train", "KeyError: 'x'"), shows="KeyError"),
    ),
}

BY_HAND = {Cause.STORAGE, Cause.PREEMPTED, Cause.LOST, Cause.OUTPUTS_LOST, Cause.PRUNED, Cause.SLOW}
"""Causes that come from outside the box: written into the run, for their advice needs no evidence of it."""


def commands_in(advice: str, terminal: Terminal) -> list[list[str]]:
    """Each command that the advice names, its placeholders filled in as a user would."""
    assert "JOB.yaml" not in advice
    text = advice.replace("=...", "=2")
    text = text.replace("--out DIR", f"--out {terminal.folder / 'elsewhere'}")
    return [shlex.split(found)[1:] for found in _COMMAND.findall(text)]


def follow(terminal: Terminal, run: Run, shows: str) -> None:
    """Type what the advice says; it has to succeed, and to show what helps."""
    advice = advice_for(run, checkpoint=Outputs(run).checkpoints is not None)
    for arguments in commands_in(advice, terminal):
        terminal.market.taken = set()
        fresh = arguments[0] == "launch"
        end = terminal.type(*arguments, *(["-y"] if fresh else []))
        assert end.exit_code == 0, (advice, end.output)
        assert end.stdout.strip(), (advice, end.output)
        assert shows in end.stdout, (advice, end.output)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_advice_of_a_cause_helps_where_it_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cause, situation = SITUATIONS[name]
    terminal = Terminal(tmp_path, situation.training, Training())
    situation.prepare(terminal)
    terminal.launch(*situation.options)
    run = terminal.ledger.runs()[0]
    assert run.cause is cause, run.detail
    follow(terminal, run, situation.shows)


@pytest.mark.parametrize("cause", sorted(BY_HAND))
def test_the_advice_helps_whose_cause_comes_from_outside_the_box(
    cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path, CRASH, Training())
    terminal.launch()
    follow(terminal, replace(terminal.ledger.runs()[0], cause=cause), "SUCCEEDED")


def test_the_advice_for_a_run_that_is_open_helps(terminal: Terminal) -> None:
    terminal.launch("--detach")
    run = terminal.ledger.runs()[0]
    assert run.phase is not Phase.ENDED
    follow(terminal, run, "SUCCEEDED")


def test_the_advice_for_a_machine_that_is_not_destroyed_helps(terminal: Terminal) -> None:
    terminal.market.deaf = True
    assert terminal.launch().exit_code == 11
    terminal.market.deaf = False
    follow(terminal, terminal.ledger.runs()[0], "SUCCEEDED")


def test_advice_names_the_provider_unless_it_is_the_default(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, ended("error"))
    terminal.launch()
    run = terminal.ledger.runs()[0]
    assert " --provider vast" in advice_for(replace(run, provider="vast"), checkpoint=False)
    assert "--provider" not in advice_for(replace(run, provider="local"), checkpoint=False)


PROGRAM, TRAINING = dump_job(command_job()), dump_job(train_job())


@pytest.mark.parametrize(
    ("spec_json", "cause", "detail", "says"),
    [
        (PROGRAM, Cause.COMMUNICATION, "DistNetworkError: port: 29500, name: EADDRINUSE", "$MASTER_PORT"),
        (PROGRAM, Cause.USER_ERROR, "OSError: [Errno 98] Address already in use", "$MASTER_PORT"),
        (PROGRAM, Cause.COMMUNICATION, "NCCL error", "NCCL_DEBUG"),
        (PROGRAM, Cause.OUT_OF_MEMORY, "torch.OutOfMemoryError: CUDA out of memory", "gpu_memory_gb"),
        (PROGRAM, Cause.OUT_OF_MEMORY, "DataLoader worker (pid 1) is killed by signal: Killed", "memory_gb"),
        (PROGRAM, Cause.OUT_OF_MEMORY, "Bus error; /dev/shm (0.064 GB) was full", "TMPDIR"),
        (
            PROGRAM,
            Cause.USER_ERROR,
            "closed; rank 1 had exited: the ranks did not do the same work",
            "drop_last",
        ),
        (PROGRAM, Cause.OUT_OF_MEMORY, "SIGKILL; the kernel killed it: out of memory", "memory_gb"),
        (TRAINING, Cause.OUT_OF_MEMORY, "SIGKILL; the kernel killed it: out of memory", "memory_gb"),
        (TRAINING, Cause.OUT_OF_MEMORY, "torch.OutOfMemoryError", "halve train.batch"),
        (PROGRAM, Cause.USER_ERROR, "go.sh: /bin/sh^M: bad interpreter: No such file", "LF"),
        (PROGRAM, Cause.USER_ERROR, "env: use -[v]S to pass options in shebang lines", "LF"),
        (PROGRAM, Cause.USER_ERROR, "go.sh: line 2: $'\\r': command not found", "LF"),
        (
            PROGRAM,
            Cause.USER_ERROR,
            "ValueError: You set `devices=1` and `num_nodes=1` in Lightning, but the product (1 * 1)",
            "LOCAL_WORLD_SIZE",
        ),
        (
            PROGRAM,
            Cause.USER_ERROR,
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you",
            "add_safe_globals",
        ),
        (
            PROGRAM,
            Cause.USER_ERROR,
            "train.py: error: the following arguments are required: --data, --local_rank",
            "--local_rank $LOCAL_RANK",
        ),
        (PROGRAM, Cause.USER_ERROR, "Duplicate GPU detected : rank 1 and rank 0 both on", "LOCAL_RANK"),
        *(
            (PROGRAM, Cause.USER_ERROR, text, "torch.cuda.is_available()")
            for text in (
                "RuntimeError: Distributed package doesn't have NCCL built in",
                "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
                "AssertionError: Torch not compiled with CUDA enabled",
                "RuntimeError: Found no NVIDIA driver on your system.",
                "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
                "RuntimeError: No CUDA GPUs are available",
            )
        ),
        (PROGRAM, Cause.USER_ERROR, "ValueError: {run} {nosuch}", "fix the program"),
    ],
)
def test_facts_of_a_failure_decide_the_advice(spec_json: str, cause: Cause, detail: str, says: str) -> None:
    advice = advice_for(_failed(spec_json, cause, detail), checkpoint=False)
    assert says in advice
    assert ("train." in advice) is ("halve" in says)


def test_advice_names_the_job_file_as_it_was_typed() -> None:
    spec = replace(command_job(), job_file="jobs/my job.yaml")
    for cause in (Cause.USER_ERROR, Cause.STORAGE, Cause.NO_OFFER, Cause.LOST):
        advice = advice_for(_failed(dump_job(spec), cause), checkpoint=False)
        assert "'jobs/my job.yaml'" in advice
        assert "JOB.yaml" not in advice
    assert "yaml" not in advice_for(_failed(dump_job(spec), Cause.LOST), checkpoint=True)


def test_a_run_that_holds_a_machine_is_held_again_with_its_slots() -> None:
    job = replace(
        command_job(), job_file="jobs/a.yaml", resources=Resources(gpus=2, memory_gb=16, disk_gb=20)
    )
    spec = hold_spec(job, slots=3, hours=1, usd=None, idle_s=60)
    run = replace(_failed(dump_job(spec), Cause.NO_OFFER), provider="vast")
    advice = advice_for(run, checkpoint=False)
    assert "6 GPUs, 48 GB of memory, 60 GB of disk; try fewer --slots" in advice
    for cause in HOLD_ADVICE:
        advice = advice_for(replace(run, cause=cause), checkpoint=False)
        assert "vastrun hold jobs/a.yaml --provider vast --slots N" in advice
        assert "vastrun launch" not in advice


@pytest.mark.parametrize("cause", list(SLOT_ADVICE))
def test_the_advice_for_a_run_on_a_slot_is_about_the_machine_that_is_held(cause: Cause) -> None:
    spec = replace(command_job(), job_file="a.yaml", slot_on="proud-fox-0001")
    run = replace(_failed(dump_job(spec), cause), provider="pool", offer=None)
    advice = advice_for(run, checkpoint=False)
    assert "vastrun hold a.yaml --slots N" in advice
    assert ("vastrun stop proud-fox-0001" in advice) is (cause is Cause.HOST)
    in_batch = advice_for(replace(run, batch="lr"), checkpoint=False)
    assert "vastrun hold" not in in_batch
    assert advice_for(replace(run, provider="local"), checkpoint=False) != advice


def test_a_run_of_a_batch_is_retried_with_its_batch() -> None:
    spec = replace(command_job(), job_file="jobs/lr.yaml")
    for cause in ADVICE:
        run = replace(_failed(dump_job(spec), cause), batch="lr")
        advice = advice_for(run, checkpoint=False)
        assert "vastrun launch" not in advice
        assert "JOB.yaml" not in advice
    lost = replace(_failed(dump_job(spec), Cause.LOST), batch="lr")
    assert advice_for(lost, checkpoint=False).endswith(": vastrun batch retry lr")
    assert "vastrun launch --from" in advice_for(lost, checkpoint=True)
    broken = replace(lost, cause=Cause.USER_ERROR)
    assert "vastrun batch retry lr, or after a change of jobs/lr.yaml:" in advice_for(
        broken, checkpoint=False
    )


def test_a_file_that_was_not_shipped_comes_first_in_the_advice() -> None:
    advice = advice_for(
        _failed(PROGRAM, Cause.USER_ERROR), checkpoint=False, not_shipped="a.yaml is ignored by git; add it"
    )
    assert advice.startswith("a.yaml is ignored by git; add it, then: vastrun launch ")


@pytest.mark.parametrize("cause", Cause)
def test_the_advice_after_a_rehearsal_names_no_run(cause: Cause) -> None:
    advice = advice_for_rehearsal(_failed(PROGRAM, cause))
    assert not re.search(r"vastrun (?!rehearse)|[{}]{2}|\bcontinue it\b", advice)


def _failed(spec_json: str, cause: Cause, detail: str = "") -> Run:
    return a_run(spec_json=spec_json, phase=Phase.ENDED, out_dir="/nowhere", cause=cause, detail=detail)


def test_the_hint_for_a_checkpoint_that_is_still_on_the_machine_brings_it(terminal: Terminal) -> None:
    terminal.launch("--detach")
    run = terminal.ledger.runs()[0]
    terminal.clock.sleep(10)
    refused = terminal.launch("--from", run.id)
    assert refused.exit_code == 2

    hint = refused.stderr.partition("try: ")[2]
    (arguments,) = commands_in(hint.strip(), terminal)
    end = terminal.type(*arguments)
    assert end.exit_code == 0, end.output
    assert Outputs(run).checkpoints is not None


def test_a_run_that_ended_is_not_told_to_be_pulled(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(failed_step("30-unpack", "no"), steps=0))
    terminal.launch()
    for refused in (
        terminal.launch("--from", "last"),
        terminal.type("export", "last", "--to", str(tmp_path / "weights.safetensors")),
    ):
        assert refused.exit_code == 2
        assert "vastrun pull" not in refused.stderr


def test_every_cause_has_its_situation() -> None:
    assert {cause for cause, _ in SITUATIONS.values()} | BY_HAND == set(ADVICE) == set(Cause)


def test_without_a_checkpoint_nothing_is_to_be_continued(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch()
    run = terminal.ledger.runs()[0]
    for cause in Cause:
        assert "continue" not in advice_for(replace(run, cause=cause), checkpoint=False), cause
