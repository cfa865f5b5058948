"""Launches of a program on an emulated Vast of its own, whose machines are destroyed at their steps."""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.frameworks.judgement import (
    Judged,
    Weights,
    difference,
    judge,
    load_weights,
    newest_in,
    starts_in,
)
from benchmarks.chaos.frameworks.plans import STEP_S, Plan, Program
from benchmarks.chaos.layouts.train import LAST_STEP
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.asking import ask
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually

_MAX_S = 900.0
_STEP = re.compile(r"^step (\d+)\b", re.MULTILINE)


class TooLateError(Exception):
    """A program on a busy computer had done its last step before its machine was destroyed."""


@dataclass(frozen=True, kw_only=True)
class Continued:
    """A new run that continues from one that was stopped."""

    program: Program
    option: str
    """`--from` or `--from-url`."""
    newest: int
    """The step of the newest checkpoint there."""
    starts: tuple[int, ...]
    difference: float
    exit_code: int

    @property
    def is_good(self) -> bool:
        return self.starts == (self.newest,) and not self.difference and not self.exit_code

    def __str__(self) -> str:
        starts = ", ".join(map(str, self.starts))
        fault = "" if self.is_good else f"  WRONG: {self.newest=} {self.difference=} {self.exit_code=}"
        return f"{self.option:10}  {self.program.name:22}  started after {starts}{fault}"


def train_undisturbed(program: Program) -> Weights:
    """Return the final weights of a run that nothing happens to. Raises AssertionError when it fails."""
    with _rented() as (terminal, _):
        done = terminal.type("launch", *_arguments(program, step_s=0.0), within_s=_MAX_S)
        assert done.exit_code == 0, done.err
        return load_weights(terminal.outputs() / "outputs" / program.weights)


def train(plan: Plan, expected: Weights) -> Judged:
    """Train, destroy each machine at its step, and judge what happened. Raises TooLateError."""
    with _rented(seed=plan.number) as (terminal, vast):
        launch = terminal.start("launch", *_arguments(plan.program, step_s=STEP_S))
        logs = [_destroy(vast, launch, step, plan.delay_s) for step in plan.steps]
        code = launch.end(within_s=_MAX_S).exit_code
        rows = terminal.type("status", "--json").json()["runs"]
        return judge(
            plan, rows=rows, exit_code=code, logs=logs, left_rented=len(vast.instances), expected=expected
        )


def continue_run(program: Program, expected: Weights) -> tuple[Continued, ...]:
    """Stop a run that pushes its checkpoints, and continue it from its outputs and from the URL."""
    with _rented() as (terminal, _):
        there = terminal.folder / "pushed"
        push = ("--set", f"checkpoints.push=file://{there}")
        launch = terminal.start("launch", *_arguments(program, step_s=STEP_S), *push)
        launch.shows("downloaded", within_s=_MAX_S)
        first = terminal.status()["run"]
        eventually(lambda: newest_in(there / first["id"], program), what="a pushed checkpoint")
        assert terminal.type("stop", first["id"]).exit_code == 0
        launch.end(within_s=_MAX_S)
        origins = (
            ("--from", first["id"], Path(first["out_dir"]) / "checkpoints"),
            ("--from-url", f"file://{there}/{first['id']}", there / first["id"]),
        )
        return tuple(_continue(terminal, program, expected, *origin) for origin in origins)


def _continue(
    terminal: Terminal, program: Program, expected: Weights, option: str, origin: str, checkpoints: Path
) -> Continued:
    arguments = _arguments(program, step_s=0.0)
    done = terminal.type("launch", *arguments, option, origin, within_s=_MAX_S)
    folder = terminal.outputs()
    return Continued(
        program=program,
        option=option,
        newest=newest_in(checkpoints, program),
        starts=tuple(starts_in(folder)),
        difference=difference(folder, program, expected),
        exit_code=done.exit_code,
    )


def _arguments(program: Program, *, step_s: float) -> tuple[str, ...]:
    # The set-up commands would ask an index for what is installed here.
    settings = ["setup=[]", f"env.STEP_S={step_s}", "checkpoints.every_s=0.5", "limits.usd=1"]
    settings += [] if program.layout is None else [f"env.LAYOUT={program.layout}"]
    changes = (word for setting in settings for word in ("--set", setting))
    return (str(program.job), "--provider", "vast", "--yes", *changes)


@contextmanager
def _rented(seed: int = 0) -> Iterator[tuple[Terminal, VastEmulator]]:
    """Yield a user's terminal with an account on a Vast of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        VastEmulator(machines(6), seed=seed, pace=LOADING) as vast,
    ):
        terminal = Terminal(Path(folder), **vast.variables)
        try:
            yield terminal, vast
        finally:
            terminal.clean()


def _destroy(vast: VastEmulator, launch: Launch, step: int, delay_s: float) -> str:
    """Destroy the machine after its program has done this step. Return what rank 0 had printed by then.

    Raises TooLateError when there is nothing left to continue.
    """
    deadline = time.monotonic() + _MAX_S
    while launch.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        if _newest_step(_printed(vast)) >= step:
            time.sleep(delay_s)
            printed = _printed(vast)
            if _newest_step(printed) >= LAST_STEP:
                raise TooLateError
            for instance in list(vast.instances):
                ask(vast, "DELETE", f"/api/v0/instances/{instance.id}/", {})
            return printed
    raise AssertionError(f"the program did not come to step {step}: {launch.err[-2000:]}")


def _printed(vast: VastEmulator) -> str:
    """Return what rank 0 of the rented machine has printed, and nothing of one that is being removed."""
    with vast.lock:
        instances = list(vast.instances)
    printed = ""
    for instance in instances:
        with suppress(FileNotFoundError):
            log = vast.folder / f"C.{instance.id}" / "root/vastrun/run/raw/rank-0.log"
            printed += log.read_text(errors="replace")
    return printed


def _newest_step(printed: str) -> int:
    return max((int(number) for number in _STEP.findall(printed)), default=0)
