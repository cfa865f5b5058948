"""What a launcher drives runs with: the ports, who it is, and the budgets that bind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from vastrun.launcher.core import KeepAnswer
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.ports import (
    Clock,
    Ledger,
    Notifier,
    OutputStore,
    Packer,
    Provider,
    Screen,
    UserRequests,
)


@dataclass(frozen=True, kw_only=True)
class Services:
    """What a launcher drives with."""

    provider: Provider
    ledger: Ledger
    clock: Clock
    packer: Packer
    output_store: OutputStore
    screen: Screen
    user_requests: UserRequests
    who: str
    """Names this launcher: `computer:pid:word`."""
    user: str = ""
    """The login name of whoever runs it."""
    computer: str = ""
    """This computer's name within a team; empty: the ledger is this computer's own."""
    notifier: Notifier | None = None
    """None: nobody is told but the screen."""
    budgets: Callable[[float], Sequence[Budget]] = lambda _now: ()
    """Those that bind every run at that moment, besides its batch's."""
    active_runs: Callable[[], int] = lambda: 1
    """How many this launcher drives now."""
    ask_to_keep: Callable[[str, Callable[[], bool]], KeepAnswer | None] = lambda _files, _settled: None
    """Asks what becomes of files that are only on the machine, until that is true; None: no terminal."""
    guard: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda _look: nullcontext()
    """Calls a function each second, in another thread, until the block ends."""
    check_nodes: Callable[[], None] = lambda: None
    """Raises what the launcher could not go on with on another node of the run."""
