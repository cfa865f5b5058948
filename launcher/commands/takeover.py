"""Runs and batches of other launchers: follow one, or continue it here where its machine can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from vastrun.launcher.commands.chains import failed_before_training
from vastrun.launcher.commands.queries import diary_of
from vastrun.launcher.core import NOTHING, Driver, Origin, Phase, Progress, Run, UserRequest
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.labels import POOL, member_folder
from vastrun.launcher.decisions.holders import holder_of
from vastrun.launcher.decisions.job_shape import stage_name
from vastrun.launcher.decisions.nodes import at_total_price, total_usd
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.flow.services import Services
from vastrun.launcher.outputs.folder import GrowingFile, Outputs
from vastrun.launcher.ports import Ledger, Provider

ServicesFor = Callable[[str, Origin], Services]
"""Services with the provider of that name, with which a run continues from there."""
_POLL_INTERVAL_S = 0.5
_LAST_LINES = 10
_MAX_FOLDERS = 100


def check_reachable(run: Run, services: Services, services_for: ServicesFor) -> None:
    """Raise UsageError when only another computer reaches the run's machine."""
    if run.computer == services.computer or services.provider.shared:
        return
    name = services.provider.name
    if name == POOL:
        holder = holder_of(run)
        if holder is None:
            return
        name = services.ledger.get(holder).provider
        if services_for(name, NOTHING).provider.shared:
            return
    raise UsageError(
        f"{run.id} was started on {display_name(run.computer)}: its machine, on {name}, "
        "can be reached only from there",
        hint=f"there: vastrun resume {run.id}",
    )


@contextmanager
def held(run: Run, services: Services) -> Iterator[None]:
    """Keep other launchers from the run meanwhile. Raises HeldError when one drives it."""
    services.ledger.hold(run.id, Driver(who=services.who, until=services.clock.now() + DRIVER_TIMEOUT_S))
    try:
        yield
    finally:
        services.ledger.release(run.id, services.who)


def move_nodes(run: Run, services: Services) -> None:
    """Take over the other nodes: their outputs are downloaded to the run's folder. Raises HeldError."""
    ledger = services.ledger
    for node in ledger.runs(leader=run.id):
        if node.phase is not Phase.ENDED:
            with held(node, services):
                folder = f"{run.out_dir}/{member_folder(node.node)}"
                ledger.save(replace(node, out_dir=folder, computer=run.computer), who=services.who)


def move_batch(batch: Batch, provider: Provider, ledger: Ledger, here: str) -> str:
    """Have the batch's outputs downloaded to this computer, and return a line about it.

    Raises UsageError when its machines can only be reached from the computer where it was started.
    """
    there = display_name(batch.computer)
    if not provider.shared:
        raise UsageError(
            f"batch {batch.name} was started on {there}: its machines, on {batch.provider}, "
            "can be reached only from there",
            hint=f"there: vastrun batch resume {batch.name}",
        )
    folder = str((Path("batches") / batch.name).resolve())
    ledger.batches.move(batch.name, folder, here)
    return f"batch {batch.name} is taken over from {there}: outputs are downloaded to {folder}"


def display_name(computer: str) -> str:
    """Return the name that a user knows the computer by."""
    return computer.partition("~")[0] or "another computer"


def folder_here(run: Run, ledger: Ledger) -> str:
    """Return where on this computer the outputs of a run that another one began come to: its batch's folder,
    or `runs/RUN`.
    """
    if run.batch:
        with suppress(UsageError):  # its user removed the batch
            return str(Path(ledger.batches.get(run.batch).folder) / Path(run.out_dir).name)
    return str((Path("runs") / run.id).resolve())


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
        services.note_phase(run.phase)
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
    return Progress(step=run.step or None, steps=run.steps or None, stage=stage_name(run), left_s=left_s)


def folder_after(chain: Sequence[Run], run_id: str, services: Services) -> str:
    """Return the output folder of another attempt: `runs/RUN`, or a numbered one next to the folder that the
    user named.

    They come to that one itself as long as no machine before was ever ready: nothing lies there.
    """
    first, output_store = chain[0], services.output_store
    if first.computer != services.computer:
        return folder_here(replace(first, id=run_id, out_dir=run_id), services.ledger)
    out = Path(first.out_dir)
    if out.name == first.id:
        return str(out.with_name(run_id))
    if failed_before_training(chain[-1]) and chain[-1].computer == services.computer:
        return chain[-1].out_dir
    for number in range(len(chain) + 1, len(chain) + _MAX_FOLDERS):
        folder = f"{out}-{number}"
        with suppress(UsageError):
            output_store.check_unused(replace(first, id=run_id, out_dir=folder))
            return folder
    return str(out.with_name(f"{out.name}-{run_id}"))
