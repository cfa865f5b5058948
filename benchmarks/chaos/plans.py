"""Plans: which troubles befall a run; always the same for the same seed."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.chaos.troubles import (
    BOX,
    BY_DOCKER,
    CLOCK,
    COMMANDS,
    COMPANY,
    CUT,
    DEADLY,
    DECEIT,
    DOCKER,
    DOCKER_KILL,
    FAULT,
    GUARDED,
    HANG_UP,
    KILL,
    LAUNCHER,
    MONEY,
    NETWORK_REMOVED,
    NEVER_STARTS,
    OF_REQUESTS,
    PAUSE,
    RECORDED,
    REPRICED,
    SURVIVED,
    UNCHARGED,
    USER,
    VICTIMS,
    Trouble,
)
from tests.hostile.deceits import DECEITS, Deceit
from vastrun.launcher.core import Cause

TAIL_USD = 0.0612
"""What is kept back for the tail of a machine's bill: 300 s of its price."""
MONEY_USD, MONEY_S = 0.016 + TAIL_USD, 63.0
"""What it pays for, after what is kept back."""
_STRANDED_S = 36.0
_NEVER_STARTS_AT = 7
"""Last digit of the runs whose machine never starts."""
_ARMED_S = 4.0
"""By then a launcher has seen that the lease of its machine is armed."""
_READINGS = 8
"""By then a machine was seen to run."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What befalls one run."""

    number: int
    troubles: tuple[Trouble, ...]
    resumes: bool
    """A launcher that is gone is followed by another one."""
    retries: bool = False
    """The job says `retry:`."""
    minutes: float = 0.0
    """How long the program works besides its lines."""
    hour_s: float = 0.0
    """By how much its world is ahead, so that runs begin at any minute of an hour."""
    wrong_by_s: float = 0.0
    """How far the launcher's clock is from Vast's, from the start."""

    @property
    def never_starts(self) -> bool:
        """Its machine loads for ever: without its launcher, Vast's own servers have to end it."""
        return self.has_fault(NEVER_STARTS)

    @property
    def abandoned(self) -> bool:
        """The launcher is gone for good."""
        return not self.resumes and self.has(LAUNCHER)

    def has(self, kind: str) -> bool:
        """Whether it is among the troubles."""
        return any(trouble.kind == kind for trouble in self.troubles)

    def has_fault(self, name: str) -> bool:
        """Whether that fault of Vast is among them."""
        return any(trouble.name == name for trouble in self.troubles)

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
    def holds_on(self) -> bool:
        """The program goes on until somebody ends it."""
        return self.has(MONEY) or (self.deceit is not None and self.deceit.holds)

    @property
    def limit_usd(self) -> float:
        """What the job may cost."""
        return MONEY_USD if self.has(MONEY) else 1.0

    @property
    def life_s(self) -> float:
        """The lease of each machine: short where nothing but a limit ends it."""
        if self.stranded:
            return _STRANDED_S
        if self.has(MONEY):
            return MONEY_S
        return 54.0 if self.abandoned else 180.0 + 60 * self.minutes

    @property
    def hours(self) -> float:
        """The job's limit of time."""
        return (180.0 if self.has(MONEY) else self.life_s) / 3600

    @property
    def collect_s(self) -> float:
        """How long a finished box waits for its outputs to be collected."""
        return 5.0 if self.abandoned else 90.0

    @property
    def watched(self) -> bool:
        """Tell whether a launcher could see when its machine ended, or when its price changed."""
        if any(
            one.kind == CUT and one.at_s < _ARMED_S and one.seconds > self.life_s for one in self.troubles
        ):
            return (
                False  # the lease was never seen armed, so the ledger counts until the machine is seen gone
            )
        unseen = self.has(CUT) or self.has(LAUNCHER) or self.has(PAUSE)
        changes = {DOCKER_KILL, *UNCHARGED, *REPRICED}
        return not (unseen and (self.has(MONEY) or any(one.name in changes for one in self.troubles)))


def plan(
    seed: int, number: int, *, docker: bool = False, hostile: bool = False, minutes: float = 0.0
) -> Plan:
    """The plan of the run with that number.

    With `docker`, its first trouble is one of containers; with `hostile`, its box lies.
    """
    chance = random.Random(f"{seed}-{number}")
    resumes, retries = chance.random() < 0.7, chance.random() < 0.3
    kinds = chance.sample(
        list(_MAKE), chance.choice((1, 1, 2, 2, 3)), counts=[many for _, many in _MAKE.values()]
    )
    # A box whose own road back is blocked needs a launcher; nobody can end it when that is gone, too.
    tame = LAUNCHER in kinds and not resumes
    troubles = tuple(_MAKE[kind][0](chance, tame) for kind in kinds)
    if docker:
        troubles = (_container(chance, tame, number), *troubles[:1])
    hour_s = chance.uniform(0.0, 3600.0)
    if not (docker or hostile) and number % 10 == _NEVER_STARTS_AT:
        stuck = Trouble(kind=FAULT, name=NEVER_STARTS)
        kill = Trouble(kind=LAUNCHER, name=KILL, at_s=chance.uniform(0.0, 10.0))
        wrong_by_s = chance.choice((-300.0, 0.0, 300.0))
        return Plan(
            number=number, troubles=(stuck, kill), resumes=False, hour_s=hour_s, wrong_by_s=wrong_by_s
        )
    if hostile:
        lie = Trouble(kind=DECEIT, name=list(DECEITS)[number % len(DECEITS)])
        # While no launcher lives, nothing of ours holds a hostile box: one comes back.
        return Plan(number=number, troubles=(lie, *_bearable(troubles)[:1]), resumes=True)
    if not docker and number % 2 == 0:
        recorded = _recorded(chance, seed, number // 2)
        troubles = (recorded, *troubles[:1])
        # What never starts cannot end itself: a launcher comes back.
        resumes = resumes or recorded.name not in GUARDED
    return Plan(
        number=number,
        troubles=troubles,
        resumes=resumes,
        retries=retries,
        minutes=minutes,
        hour_s=0.0 if docker else hour_s,
    )


def _bearable(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Those beside which it can still be told what a lie has done."""
    return [trouble for trouble in troubles if trouble.kind in (LAUNCHER, CUT, CLOCK, PAUSE)]


def _launcher(chance: random.Random, _tame: bool) -> Trouble:
    early = chance.random() < 0.2
    at_s = chance.uniform(0.2, 3.0) if early else chance.uniform(0.0, 16.0)
    name = KILL if chance.random() < 0.8 else HANG_UP
    return Trouble(kind=LAUNCHER, name=name, at_s=at_s, early=early)


def pause(chance: random.Random, _tame: bool) -> Trouble:
    """SIGSTOP and SIGCONT of the launcher."""
    seconds = round(chance.uniform(2.0, 40.0), 1)
    return Trouble(kind=PAUSE, name="SIGSTOP", at_s=chance.uniform(0.0, 14.0), seconds=seconds)


def box(chance: random.Random, _tame: bool) -> Trouble:
    """A process on the box is killed."""
    name = chance.choice(list(VICTIMS))
    excuses = frozenset({VICTIMS[name].cause})
    return Trouble(kind=BOX, name=name, at_s=chance.uniform(0.0, 4.0), excuses=excuses)


def _clock(chance: random.Random, _tame: bool) -> Trouble:
    seconds = chance.choice((30.0, 600.0, 7200.0)) * chance.choice((1, -1))
    name = f"clock set by {seconds:+.0f} s"
    return Trouble(kind=CLOCK, name=name, at_s=chance.uniform(0.0, 14.0), seconds=seconds)


def cut(chance: random.Random, _tame: bool) -> Trouble:
    """The launcher's computer is off line for a while."""
    seconds = round(chance.uniform(5.0, 60.0), 1)
    name = f"cut of {seconds:.0f} s"
    return Trouble(kind=CUT, name=name, at_s=chance.uniform(0.0, 14.0), seconds=seconds)


def _user(chance: random.Random, _tame: bool) -> Trouble:
    name = chance.choice(("stop", "stop at once"))
    cause = COMMANDS[name][1]
    assert cause is not None
    return Trouble(kind=USER, name=name, at_s=chance.uniform(0.0, 14.0), excuses=frozenset({cause}))


def _company(chance: random.Random, _tame: bool) -> Trouble:
    name = chance.choice(("attach", "wait", "resume beside it", "another key"))
    return Trouble(kind=COMPANY, name=name, at_s=chance.uniform(0.0, 12.0))


def _money(_chance: random.Random, _tame: bool) -> Trouble:
    return Trouble(kind=MONEY, name="limit of money", excuses=frozenset({Cause.MONEY_LIMIT}))


def _container(chance: random.Random, tame: bool, number: int) -> Trouble:
    """One after the other. Who ends a container that is dead, or cut off for good, is a launcher."""
    names = [name for name in BY_DOCKER if not tame or name != DOCKER_KILL]
    name = names[number % len(names)]
    for_good = name == DOCKER_KILL or (name == NETWORK_REMOVED and not tame and number % 2 == 1)
    cause = BY_DOCKER[name] if for_good else None
    return Trouble(
        kind=DOCKER,
        name=name,
        at_s=chance.uniform(0.0, 14.0),
        seconds=0.0 if for_good else round(chance.uniform(5.0, 30.0), 1),
        excuses=frozenset({cause, Cause.OUTPUTS_LOST} if cause else ()),
    )


def fault(chance: random.Random, tame: bool) -> Trouble:
    """A fault of Vast."""
    names = GUARDED if tame else SURVIVED if chance.random() < 0.8 else tuple(DEADLY)
    name = chance.choice(names)
    longest_s = {"network_cut": 60.0, "frozen_list": 60.0, "count_off": 60.0, "create_late": 50.0}
    return Trouble(
        kind=FAULT,
        name=name,
        seconds=round(chance.uniform(0.5, longest_s.get(name, 6.0)), 1),
        after=chance.randrange(16) if name in OF_REQUESTS else 0,
        excuses=DEADLY.get(name, frozenset()),
    )


def _recorded(chance: random.Random, seed: int, number: int) -> Trouble:
    """One after the other, so that a few dozen runs meet all of them; each seed begins with another."""
    name = RECORDED[(seed + number) % len(RECORDED)]
    seconds = round(chance.uniform(0.5, 6.0), 1)
    # One that nobody has seen running yet is not tried for longer than these runs live.
    after = _READINGS if name == "listed_loading" else 0
    return Trouble(kind=FAULT, name=name, seconds=seconds, after=after, excuses=DEADLY.get(name, frozenset()))


_Make = Callable[[random.Random, bool], Trouble]
_MAKE: Mapping[str, tuple[_Make, int]] = {
    LAUNCHER: (_launcher, 2),
    PAUSE: (pause, 1),
    BOX: (box, 1),
    CLOCK: (_clock, 1),
    CUT: (cut, 1),
    USER: (_user, 1),
    COMPANY: (_company, 1),
    MONEY: (_money, 1),
    FAULT: (fault, 4),
}
"""How a trouble of each kind is made, and how many of it one run may have."""
