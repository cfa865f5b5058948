"""Services: the ports of a drive, the launcher's name, and its budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vastrun.launcher.core import KeepAnswer, Phase
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.secrets import Mask
from vastrun.launcher.ports import Clock, Ledger, OutputStore, Packer, Provider, Screen, UserRequests

if TYPE_CHECKING:
    from vastrun.launcher.notifications import Sender


@dataclass(frozen=True, kw_only=True)
class Services:
    """Ports and settings with which a launcher drives runs."""

    provider: Provider
    ledger: Ledger
    clock: Clock
    packer: Packer
    output_store: OutputStore
    screen: Screen
    user_requests: UserRequests
    who: str
    """Name of this launcher: `computer:pid:word`."""
    user: str = ""
    """Login name of the user."""
    computer: str = ""
    """This computer's name within a team; empty: the ledger is this computer's own."""
    notifier: Sender | None = None
    """Sends notifications; None: only the screen shows them."""
    budgets: Callable[[float], Sequence[Budget]] = lambda _now: ()
    """Returns the budgets of all runs at that moment, besides the batch's."""
    active_runs: Callable[[], int] = lambda: 1
    """Returns the number of runs that this launcher drives now."""
    ask_to_keep: Callable[[str, Callable[[], bool]], KeepAnswer | None] = lambda _files, _settled: None
    """Asks what to do with files that are only on the machine, until the function returns True; None: no
    terminal."""
    guard: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda _look: nullcontext()
    """Context in which a function is called each second by another thread."""
    interrupting: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda _look: nullcontext()
    """Context in which what a provider waits for in this thread ends with what the function raises."""
    call_interruptibly: Callable[..., Any] = lambda act, *args, **options: act(*args, **options)
    """Makes a call in such a context, which ends so although the provider does not answer."""
    note_phase: Callable[[Phase], None] = lambda _phase: None
    """Takes the phase of the run, for what the user is asked and told."""
    mask: Mask = field(default_factory=Mask)
    """Hides the run's secrets in what is shown and written of it."""
    call: Callable[..., Any] = lambda _verb, act, *args, **options: act(*args, **options)
    """Makes a call to the run's machine, named by its verb, and may write it down."""
    check_nodes: Callable[[], None] = lambda: None
    """Raises the error that stopped the launcher's thread of another node of the run."""
