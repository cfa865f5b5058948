"""Following: shows a run that another launcher drives, and passes on what the user asked for."""

from __future__ import annotations

from launcher.core import Phase, Progress, Run, Wish
from launcher.core.bills import cost_usd
from launcher.flow.context import Tools
from launcher.outputs.folder import GrowingFile, Outputs

_LOOK_S = 0.5
_LAST_LINES = 10


def follow(run: Run, tools: Tools) -> Run:
    """The run, once it ended, nobody drives it any more, or the user lets go of it."""
    log = GrowingFile(Outputs(run).log, last_lines=_LAST_LINES)
    seen = len(tools.ledger.events(run.id))
    while True:
        events = tools.ledger.events(run.id)[seen:]
        seen += len(events)
        for event in events:
            tools.screen.event(event)
        tools.screen.log(log.more())
        run = tools.ledger.get(run.id)
        tools.screen.progress(run, _progress(run), usd=cost_usd(run, tools.clock.now()))
        wish = tools.wishes.current()
        if wish in (Wish.STOP, Wish.DESTROY):
            tools.ledger.ask(run.id, wish)
        if run.phase is Phase.ENDED or wish is Wish.DETACH or tools.ledger.driver(run.id) is None:
            return run
        tools.clock.sleep(_LOOK_S)


def _progress(run: Run) -> Progress:
    """As its row has it: whoever drives the run looks at its box."""
    left_s = (run.steps - run.step) / run.steps_per_s if run.steps_per_s and run.steps > run.step else None
    return Progress(step=run.step or None, steps=run.steps or None, left_s=left_s)
