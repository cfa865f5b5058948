"""Troubles: what may befall a run, by kind, and how a run may end because of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.emulators.dead_ends import DEAD_ENDS
from tests.emulators.faults import FAULTS, REQUEST
from tests.hostile.deceits import DECEITS, Deceit
from vastrun.launcher.core import Cause

LAUNCHER, PAUSE, BOX, CLOCK, CUT, FAULT = "launcher", "pause", "box", "clock", "cut", "fault"
USER, COMPANY, MONEY = "user", "company", "money"
DOCKER, DECEIT = "docker", "deceit"

KILL, HANG_UP = "kill of the launcher", "hang-up of the launcher"
"""Both leave a run without a launcher."""

DEADLY: Mapping[str, frozenset[Cause]] = {
    "invalid_key": frozenset({Cause.PROVIDER}),
    "two_factor": frozenset({Cause.PROVIDER}),
    "insufficient_credit": frozenset({Cause.PROVIDER}),
    "spend_rate_limit": frozenset({Cause.PROVIDER}),
    "create_denied_done": frozenset({Cause.PROVIDER}),
    "search_quota": frozenset({Cause.PROVIDER}),
    "no_offers": frozenset({Cause.NO_OFFER}),
    "image_not_found": frozenset({Cause.USER_ERROR}),
    "pull_denied": frozenset({Cause.USER_ERROR}),
    "daemon_log_image": frozenset({Cause.USER_ERROR}),
    "container_exits": frozenset({Cause.LOST, Cause.OUTPUTS_LOST}),
    "contract_end": frozenset({Cause.LOST, Cause.OUTPUTS_LOST}),
    "host_offline": frozenset({Cause.LOST, Cause.OUTPUTS_LOST, Cause.TIME_LIMIT}),
    "outbid": frozenset({Cause.PREEMPTED, Cause.OUTPUTS_LOST}),
    "credit_zero": frozenset({Cause.PROVIDER, Cause.OUTPUTS_LOST}),
    "attach_denied": frozenset({Cause.PROVIDER}),
}
"""Faults that may end a run, and the causes that it must then name."""

CERTAIN = (
    *("insufficient_credit", "spend_rate_limit", "create_denied_done"),
    *("image_not_found", "pull_denied", "daemon_log_image"),
)
"""Those that leave no run a success, once they have struck."""

UNCHARGED = ("container_exits", "contract_end", "host_offline", "outbid", "credit_zero")
"""Those after which GPUs are charged no more, while the machine still exists."""

REPRICED = ("price_rises", "price_falls")

NEVER_STARTS = "stuck_loading"
"""What befalls a tenth of the runs, whose launcher is then killed for good."""

LEFT_OUT: Mapping[str, str] = {
    "stuck_loading": "a machine is left after 15 minutes",
    "ssh_refused": "a machine is left after 5 minutes",
    "ssh_silent": "a machine is left after 5 minutes",
    "cuda_alone": "no job here names a CUDA version",
}
"""Faults that a run of some seconds does not meet. `tests/e2e/test_vast_faults.py` has them."""

SURVIVED = tuple(name for name in FAULTS if name not in {*DEADLY, *LEFT_OUT})
"""Faults in spite of which the job succeeds, on the same machine or on the next."""

_UNGUARDED = {
    *DEAD_ENDS,
    *("created_stopped", "bid_rejected", "bid_never", "onstart_skipped", "no_container_key"),
}
GUARDED = tuple(name for name in SURVIVED if name not in _UNGUARDED)
"""Those after which the machine starts, so that its lease can end it."""

RECORDED = (
    *("ports_list", "port_null", "port_empty", "odd_columns", "listed_loading"),
    *("row_in_list", "rows_in_object"),
    *("bid_pending", "bid_never"),
    *("registry_limit", "pull_unreachable", "gpu_error", "pull_slow", "gpu_memory_used"),
    *("daemon_log_image", "daemon_log_host", "daemon_log_noise", "daemon_log_late"),
    *("key_modes_wrong", "key_owner", "attach_refused", "attach_denied", "attach_lost"),
    *("search_capped", "names_underscored", "odd_offers"),
)
"""Faults that others recorded on the live service: every second run meets one, in turn."""

LASTING = frozenset(
    {
        *("ports_list", "odd_columns", "listed_loading", "row_in_list", "rows_in_object"),
        *("search_capped", "names_underscored", "odd_offers"),
    }
)
"""Those of them that are there at every reading."""

OF_REQUESTS = frozenset(name for name, (where, _) in FAULTS.items() if where == REQUEST)


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A process that is killed on a box."""

    words: str
    """What its command line holds."""
    cause: Cause
    """What a run that this ends must name."""


VICTIMS: Mapping[str, Victim] = {
    "kill of the supervisor": Victim(words="vastrun.onstart.supervise", cause=Cause.SIGNAL),
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

COMMANDS: Mapping[str, tuple[tuple[str, ...], Cause | None]] = {
    "stop": (("stop", "last"), Cause.STOPPED),
    "stop at once": (("stop", "--now", "last"), Cause.STOPPED),
    "attach": (("attach", "last"), None),
    "wait": (("wait", "last"), None),
    "resume beside it": (("resume", "last"), None),
    "another key": (("resume", "last"), None),
}
"""What is typed at another terminal meanwhile, and what a run that this ends must name."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One thing that goes wrong."""

    kind: str
    name: str
    at_s: float = 0.0
    """Counted from the first machine; on the box, from when the victim was first seen."""
    early: bool = False
    """Counted from the launch instead."""
    seconds: float = 0.0
    """How long it lasts, or by how much the clock is set; 0: for good."""
    after: int = 0
    """So many chances are spared first."""
    excuses: frozenset[Cause] = frozenset()
    """Why a run that this befell may end otherwise than well."""

    @property
    def deceit(self) -> Deceit | None:
        """What the box's owner does to it, once the training has begun."""
        return DECEITS[self.name] if self.kind == DECEIT else None

    def __str__(self) -> str:
        if self.kind in (FAULT, DECEIT, MONEY):
            return self.name
        start = " of the launch" if self.early else ""
        lasts = f" of {self.seconds:.0f} s" if self.kind in (DOCKER, PAUSE) and self.seconds else ""
        return f"{self.name}{lasts} at {self.at_s:.1f} s{start}"
