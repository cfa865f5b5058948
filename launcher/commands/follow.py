"""Following: shows a run that another launcher drives, and passes on what the user asked for."""

from __future__ import annotations

from vastrun.launcher.commands.queries import diary_of
from vastrun.launcher.core import Phase, Progress, Run, UserRequest
from vastrun.launcher.decisions.nodes import at_total_price, total_usd
from vastrun.launcher.flow.services import Services
from vastrun.launcher.outputs.folder import GrowingFile, Outputs

_POLL_INTERVAL_S = 0.5
_LAST_LINES = 10


def follow(run: Run, services: Services) -> Run:
    """Wait until the run ends, has no driver, or the user detaches.

    Return it as it is then.
    """
    log = GrowingFile(Outputs(run).log, last_lines=_LAST_LINES)
    seen = len(services.ledger.events(run.id))
    while True:
        events = diary_of(services.ledger, run)[seen:]
        seen += len(events)
        for event in events:
            services.screen.report(event)
        services.screen.log(log.more())
        run = services.ledger.get(run.id)
        nodes = services.ledger.runs(leader=run.id)
        usd = total_usd((run, *nodes), services.clock.now())
        services.screen.progress(at_total_price(run, nodes), _progress(run), usd=usd)
        request = services.user_requests.current()
        if request in (UserRequest.STOP, UserRequest.DESTROY):
            services.ledger.ask(run.id, request)
        if (
            run.phase is Phase.ENDED
            or request is UserRequest.DETACH
            or services.ledger.driver(run.id) is None
        ):
            return run
        services.clock.sleep(_POLL_INTERVAL_S)


def _progress(run: Run) -> Progress:
    """Return the progress from the run's row, which its driver keeps; empty once training has ended."""
    if run.phase is not Phase.TRAIN:
        return Progress()
    left_s = (run.steps - run.step) / run.steps_per_s if run.steps_per_s and run.steps > run.step else None
    return Progress(step=run.step or None, steps=run.steps or None, left_s=left_s)
