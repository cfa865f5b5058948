"""Plans: which troubles befall a run, and which verdicts they excuse; always the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.model import Verdict

LAUNCHER, BOX, CLOCK, FAULT = "launcher", "box", "clock", "fault"

SURVIVED = (
    "too_many_requests",
    "too_many_requests_json",
    "too_many_requests_header",
    "server_error",
    "bad_gateway",
    "bad_gateway_done",
    "no_answer",
    "no_answer_done",
    "slow_answer",
    "not_json",
    "no_such_ask",
    "unknown_ask",
    "no_such_ask_400",
    "created_stopped",
    "slow_loading",
    "never_scheduled",
    "oci_failure",
    "pull_eof",
    "pull_no_space",
    "build_failure",
    "onstart_by_sh",
    "log_noise",
    "wrong_gpu",
    "fewer_gpus",
    "small_disk",
    "low_memory",
    "old_driver",
    "higher_price",
    "malformed_row",
    "no_ports",
    "status_lag",
    "proxy_refused",
    "direct_refused",
    "no_heartbeat",
    "frozen",
    "network_cut",
    "destroy_delayed",
    "destroy_ignored",
    "row_reappears",
    "empty_list",
    "invalid_token",
    "filters_ignored",
)
"""Faults in spite of which the job succeeds, on the same machine or on the next."""

FATAL: Mapping[str, Verdict] = {
    "invalid_key": Verdict.FAILED,
    "insufficient_credit": Verdict.FAILED,
    "search_quota": Verdict.FAILED,
    "no_offers": Verdict.NO_OFFER,
    "image_not_found": Verdict.FAILED,
    "container_exits": Verdict.LOST,
    "contract_end": Verdict.LOST,
    "credit_zero": Verdict.FAILED,
}
"""Faults that may end a run, and how."""

VICTIMS: Mapping[str, str] = {
    "the supervisor": "trainer.supervise",
    "the program": "chatter.py",
    "run.sh": "run.sh main",
}
"""What is killed on a box, and how its command line reads."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One thing that goes wrong."""

    kind: str
    name: str
    at_s: float = 0.0
    """Counted from the launch; on the box, from the first sight of the victim."""
    seconds: float = 0.0
    after: int = 0
    """So many chances are spared first."""
    excuses: frozenset[Verdict] = frozenset()

    def __str__(self) -> str:
        return f"{self.name} at {self.at_s:.1f} s" if self.kind in (LAUNCHER, BOX, CLOCK) else self.name


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What befalls one run."""

    number: int
    troubles: tuple[Trouble, ...]
    resumes: bool
    """A launcher that is killed is followed by another one."""

    @property
    def abandoned(self) -> bool:
        """The launcher is killed for good."""
        return not self.resumes and any(trouble.kind == LAUNCHER for trouble in self.troubles)

    @property
    def life_s(self) -> float:
        """The lease of each machine: short where nobody but the lease ends it."""
        return 54.0 if self.abandoned else 180.0

    @property
    def collect_s(self) -> float:
        """How long a finished box waits for its outputs to be collected."""
        return 5.0 if self.abandoned else 30.0

    @property
    def excused(self) -> frozenset[Verdict]:
        """Besides SUCCEEDED."""
        return frozenset().union(*(trouble.excuses for trouble in self.troubles))

    @property
    def jumps(self) -> bool:
        """Vast's clock and ours part: what it bills and what we count cannot be compared."""
        return any(trouble.kind == CLOCK for trouble in self.troubles)


def plan(seed: int, number: int) -> Plan:
    """The plan of the run with that number."""
    chance = random.Random(f"{seed}-{number}")
    resumes = chance.random() < 0.6
    kinds = chance.sample((LAUNCHER, BOX, CLOCK, FAULT, FAULT), chance.choice((1, 1, 2)))
    # A box whose own road back is blocked needs a launcher; nobody can end it when that is gone, too.
    tame = LAUNCHER in kinds and not resumes
    troubles = tuple(_MAKE[kind](chance, tame) for kind in kinds)
    return Plan(number=number, troubles=troubles, resumes=resumes)


def _launcher(chance: random.Random, _tame: bool) -> Trouble:
    return Trouble(kind=LAUNCHER, name="kill of the launcher", at_s=chance.uniform(0.5, 14.0))


def _box(chance: random.Random, _tame: bool) -> Trouble:
    name = chance.choice(list(VICTIMS))
    return Trouble(kind=BOX, name=name, at_s=chance.uniform(0.0, 4.0), excuses=frozenset({Verdict.FAILED}))


def _clock(chance: random.Random, _tame: bool) -> Trouble:
    seconds = chance.choice((30.0, 600.0, 7200.0))
    name = f"clock jump of {seconds:.0f} s"
    return Trouble(kind=CLOCK, name=name, at_s=chance.uniform(1.0, 10.0), seconds=seconds)


def _fault(chance: random.Random, tame: bool) -> Trouble:
    name = chance.choice(SURVIVED if tame or chance.random() < 0.8 else list(FATAL))
    return Trouble(
        kind=FAULT,
        name=name,
        seconds=round(chance.uniform(5.0, 20.0) if name == "network_cut" else chance.uniform(0.5, 6.0), 1),
        after=chance.choice((0, 0, 1, 2, 5)) if name in _OF_REQUESTS else 0,
        excuses=frozenset({FATAL[name]}) if name in FATAL else frozenset(),
    )


_OF_REQUESTS = (*SURVIVED[: SURVIVED.index("not_json") + 1], "invalid_key")
_MAKE = {LAUNCHER: _launcher, BOX: _box, CLOCK: _clock, FAULT: _fault}
