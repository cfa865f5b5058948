"""Plans: which troubles befall a run, and which verdicts they excuse; always the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.model import Cause
from tests.emulators.dead_ends import DEAD_ENDS
from tests.hostile.deceits import DECEITS, Deceit

LAUNCHER, BOX, CLOCK, CUT, FAULT = "launcher", "box", "clock", "cut", "fault"
DOCKER, DECEIT = "docker", "deceit"

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
    "null_answer",
    "list_answer",
    "text_answer",
    "null_row",
    "hidden_row",
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
    "logs_late",
    "ssh_impostor",
)
"""Faults in spite of which the job succeeds, on the same machine or on the next."""

STARTED = tuple(name for name in SURVIVED if name not in {*DEAD_ENDS, "created_stopped"})
"""Those after which the machine starts, so that its lease can end it."""

FATAL: Mapping[str, Cause] = {
    "invalid_key": Cause.PROVIDER,
    "insufficient_credit": Cause.PROVIDER,
    "search_quota": Cause.PROVIDER,
    "no_offers": Cause.NO_OFFER,
    "image_not_found": Cause.USER_ERROR,
    "container_exits": Cause.LOST,
    "contract_end": Cause.LOST,
    "credit_zero": Cause.PROVIDER,
}
"""Faults that may end a run, and the cause that it must then name."""

CERTAIN = ("insufficient_credit", "image_not_found")
"""Those that leave no run a success, once they have struck."""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A process that is killed on a box."""

    words: str
    """What its command line holds."""
    cause: Cause
    """What a run that this ends must name."""


VICTIMS: Mapping[str, Victim] = {
    "kill of the supervisor": Victim(words="trainer.supervise", cause=Cause.SIGNAL),
    "kill of the program": Victim(words="chatter.py", cause=Cause.SIGNAL),
    "kill of run.sh": Victim(words="run.sh main", cause=Cause.HOST),
}


DOCKER_KILL, DOCKER_PAUSE, NETWORK_REMOVED = "docker kill", "docker pause", "removed network"
BY_DOCKER: Mapping[str, Cause | None] = {
    DOCKER_KILL: Cause.LOST,
    DOCKER_PAUSE: None,
    NETWORK_REMOVED: Cause.TIME_LIMIT,
}
"""What befalls a container, and what a run that this ends must name."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One thing that goes wrong."""

    kind: str
    name: str
    at_s: float = 0.0
    """Counted from the first machine; on the box, from the first sight of the victim."""
    early: bool = False
    """Counted from the launch instead."""
    seconds: float = 0.0
    """How long it lasts, or by how much the clock is set; 0: for good."""
    after: int = 0
    """So many chances are spared first."""
    excuses: Cause | None = None
    """Why a run may end otherwise than well."""

    @property
    def deceit(self) -> Deceit | None:
        """What the box's owner does to it, once the training has begun."""
        return DECEITS[self.name] if self.kind == DECEIT else None

    def __str__(self) -> str:
        if self.kind in (FAULT, DECEIT):
            return self.name
        start = " of the launch" if self.early else ""
        lasts = f" of {self.seconds:.0f} s" if self.kind == DOCKER and self.seconds else ""
        return f"{self.name}{lasts} at {self.at_s:.1f} s{start}"


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
    def deceit(self) -> Deceit | None:
        """What the box's owner does to it."""
        return next((trouble.deceit for trouble in self.troubles if trouble.deceit), None)

    @property
    def stranded(self) -> bool:
        """The box can neither be reached nor end itself: its launcher ends it, some time after the lease."""
        unplugged = any(trouble.name == NETWORK_REMOVED and not trouble.seconds for trouble in self.troubles)
        return unplugged or (self.deceit is not None and self.deceit.holds)

    @property
    def life_s(self) -> float:
        """The lease of each machine: short where nothing but a limit ends it."""
        if self.stranded:
            return 36.0
        return 54.0 if self.abandoned else 180.0

    @property
    def collect_s(self) -> float:
        """How long a finished box waits for its outputs to be collected."""
        return 5.0 if self.abandoned else 90.0

    @property
    def excused(self) -> frozenset[Cause]:
        """The causes that may end the run."""
        deceived = {cause for cause in self.deceit.causes if cause} if self.deceit else set()
        return frozenset({trouble.excuses for trouble in self.troubles if trouble.excuses} | deceived)

    @property
    def excused_before_renting(self) -> frozenset[Cause]:
        """More of them, while nothing is rented: whoever is off line then is told so at once."""
        cut = any(trouble.kind == CUT for trouble in self.troubles)
        return frozenset({Cause.PROVIDER}) if cut else frozenset()

    @property
    def loses_time(self) -> bool:
        """The clock is set while no launcher lives, or a container is killed while nobody can look."""
        kinds = {trouble.kind for trouble in self.troubles}
        killed = any(trouble.name == DOCKER_KILL for trouble in self.troubles)
        return {CLOCK, LAUNCHER} <= kinds or (killed and CUT in kinds)


def plan(seed: int, number: int, *, docker: bool = False, hostile: bool = False) -> Plan:
    """The plan of the run with that number.

    With `docker`, its first trouble is one of containers; with `hostile`, its box lies.
    """
    chance = random.Random(f"{seed}-{number}")
    resumes = chance.random() < 0.6
    kinds = chance.sample((LAUNCHER, BOX, CLOCK, CUT, FAULT, FAULT), chance.choice((1, 1, 2)))
    # A box whose own road back is blocked needs a launcher; nobody can end it when that is gone, too.
    tame = LAUNCHER in kinds and not resumes
    troubles = tuple(_MAKE[kind](chance, tame) for kind in kinds)
    if docker:
        troubles = (_container(chance, tame, number), *troubles[:1])
    if hostile:
        lie = Trouble(kind=DECEIT, name=list(DECEITS)[number % len(DECEITS)])
        # While no launcher lives, nothing of ours holds a hostile box: one comes back.
        return Plan(number=number, troubles=(lie, *_bearable(troubles)[:1]), resumes=True)
    return Plan(number=number, troubles=troubles, resumes=resumes)


def _bearable(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Those beside which it can still be told what a lie has done."""
    return [trouble for trouble in troubles if trouble.kind in (LAUNCHER, CUT, CLOCK)]


def _launcher(chance: random.Random, _tame: bool) -> Trouble:
    early = chance.random() < 0.2
    at_s = chance.uniform(0.2, 3.0) if early else chance.uniform(0.0, 16.0)
    return Trouble(kind=LAUNCHER, name="kill of the launcher", at_s=at_s, early=early)


def _box(chance: random.Random, _tame: bool) -> Trouble:
    name = chance.choice(list(VICTIMS))
    return Trouble(kind=BOX, name=name, at_s=chance.uniform(0.0, 4.0), excuses=VICTIMS[name].cause)


def _clock(chance: random.Random, _tame: bool) -> Trouble:
    seconds = chance.choice((30.0, 600.0, 7200.0)) * chance.choice((1, -1))
    name = f"clock set by {seconds:+.0f} s"
    return Trouble(kind=CLOCK, name=name, at_s=chance.uniform(0.0, 14.0), seconds=seconds)


def _cut(chance: random.Random, _tame: bool) -> Trouble:
    seconds = round(chance.uniform(5.0, 60.0), 1)
    name = f"cut of {seconds:.0f} s"
    return Trouble(kind=CUT, name=name, at_s=chance.uniform(0.0, 14.0), seconds=seconds)


def _container(chance: random.Random, tame: bool, number: int) -> Trouble:
    """One after the other. Who ends a container that is dead, or cut off for good, is a launcher."""
    names = [name for name in BY_DOCKER if not tame or name != DOCKER_KILL]
    name = names[number % len(names)]
    for_good = name == DOCKER_KILL or (name == NETWORK_REMOVED and not tame and number % 2 == 1)
    return Trouble(
        kind=DOCKER,
        name=name,
        at_s=chance.uniform(0.0, 14.0),
        seconds=0.0 if for_good else round(chance.uniform(5.0, 30.0), 1),
        excuses=BY_DOCKER[name] if for_good else None,
    )


def _fault(chance: random.Random, tame: bool) -> Trouble:
    names = STARTED if tame else SURVIVED if chance.random() < 0.8 else tuple(FATAL)
    name = chance.choice(names)
    return Trouble(
        kind=FAULT,
        name=name,
        seconds=round(chance.uniform(5.0, 60.0) if name == "network_cut" else chance.uniform(0.5, 6.0), 1),
        after=chance.choice((0, 0, 1, 2, 5)) if name in _OF_REQUESTS else 0,
        excuses=FATAL.get(name),
    )


_OF_REQUESTS = (*SURVIVED[: SURVIVED.index("not_json") + 1], "invalid_key")
_MAKE = {LAUNCHER: _launcher, BOX: _box, CLOCK: _clock, CUT: _cut, FAULT: _fault}
