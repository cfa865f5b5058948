"""Running: nothing waits for a GPU in a step, batches come beside it, a hang is explained, programs run."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.check import Broken, Place, Seen, expect
from tests.gpu.ranks import together
from tests.gpu.trainings import STEPS, Settings, begin, box_of, expect_reason, heart_of, learn, supervised
from vastrun.contract import layout
from vastrun.contract.layout import PROFILES

if TYPE_CHECKING:
    from vastrun.trainer.engine.session import Session

_WARM_UP = 3
_DATA: Settings = {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9}


def check_no_sync(place: Place, folder: Path) -> Seen:
    """Take 20 steps in which torch raises an error where the host waits for the GPU."""
    alone: Mapping[str, Settings] = {
        "fp32": {},
        "bf16": {"precision": "bf16"},
        "fp16": {"precision": "fp16"},
        "muon": {"optim": {"name": "muon"}},
        "muon fp16": {"optim": {"name": "muon"}, "precision": "fp16"},
        "average": {"ema": 0.9},
        "from memory": {"data": {**_DATA, "keep": "host"}},
        "spectral": {"objective": {"spectral": 0.1, "conservation": 0.1}},
    }
    ranks = place.ranks(2)
    spread: Mapping[str, Settings] = {
        f"ddp x{ranks}": {"strategy": "ddp"},
        f"fsdp2 x{ranks}": {"strategy": "fsdp2"},
        f"fsdp2 muon x{ranks}": {"strategy": "fsdp2", "optim": {"name": "muon"}},
    }
    for size, jobs in ((1, alone), (ranks, spread)):
        box = box_of(folder / f"box-{size}-{len(jobs)}", place, {}, ranks=size)
        together(place, _unsynchronised, size, box, jobs)
    return Seen(text=", ".join([*alone, *spread]))


def _unsynchronised(ranks: Any, box: Path, jobs: Mapping[str, Settings]) -> None:
    for name, settings in jobs.items():
        session, _ = learn(begin(ranks, box, {**settings, "steps": 2 * STEPS}), 0, _WARM_UP)
        take_steps_without_waiting(session, name, _WARM_UP, _WARM_UP + STEPS)
        ranks.wait_for_all()
        session.loader.close()


def take_steps_without_waiting(session: Session, name: str, first: int, last: int) -> None:
    """Train the steps from `first` to before `last`. Raises Broken where the host waits for the GPU."""
    from vastrun.trainer.engine.step import train_step

    heart = heart_of(session)
    try:
        with _waiting_forbidden(session.ranks.device):
            for step in range(first, last):
                train_step(session, step, heart)
    except RuntimeError as error:
        raise Broken(f"{name}: a step waits for the GPU: {error}") from error


@contextmanager
def _waiting_forbidden(device: Any) -> Iterator[None]:
    import torch

    if device.type == "cpu":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_loader(place: Place, folder: Path) -> Seen:
    """Read all batches ahead, from pinned memory, while the GPU computes: each arrives whole."""
    ways: Mapping[str, Settings] = {
        "host": {"data": {**_DATA, "keep": "host"}},
        "disk": {"data": {**_DATA, "keep": "disk"}},
        "unpinned": {"data": {**_DATA, "keep": "host"}, "loader": {"pin": False}},
    }
    box = box_of(folder / "box", place, {})
    counts = together(place, _delivered, 1, box, ways)[0]
    return Seen(text=", ".join(f"{name}: {count} batches" for name, count in counts.items()))


def _delivered(ranks: Any, box: Path, ways: Mapping[str, Settings]) -> dict[str, int]:
    """Compare every batch with the one that is read by hand, beside a GPU that always has work."""
    import torch

    counts = {}
    busy = torch.randn(1024, 1024, device=ranks.device)
    for name, settings in ways.items():
        session = begin(ranks, box, {**settings, "micro_batch": 4})
        plan, counts[name] = session.task_schedule.sample_plans[0], 0
        for step in range(STEPS):
            for number in range(session.task_schedule.micro_batches):
                windows = session.loader.read(step, number)
                busy = (busy @ busy).tanh()
                by_hand = session.tasks[0].batch(step, plan.micro_batch_of(step, number))
                for field, tensor in windows.tensors.items():
                    same = torch.equal(tensor.cpu(), by_hand.tensors[field].cpu())
                    on = tensor.device.type == ranks.device.type
                    expect(same and on, f"{name}: {field} of batch {number} of step {step} is another")
                counts[name] += 1
        session.loader.close()
    return counts


def check_hang(place: Place, folder: Path) -> Seen:
    """Stop one of two ranks for ever: it is named, all stacks are there, and what NCCL was in."""
    ranks = 2
    fault = {"what": "sleep", "where": "backward", "rank": 1, "step": 5}
    settings: Settings = {
        "strategy": "ddp",
        "data": {**_DATA, "task": "tests.onstart.supervision.faulty:make"},
    }
    job: dict[str, Any] = {"stall_s": 8.0, "env": {"FAULTS": json.dumps([fault])}}
    with supervised(box_of(folder / "box", place, settings, ranks=ranks, **job)) as run:
        outcome = run.outcome()
        expect_reason(run, outcome, "finished")
    first = outcome.starts[0]
    expect(first.reason == "hang" and "rank 1" in first.detail, f"the hang was told as {first}")
    past = run.box / layout.STARTS / "0"
    stacks = sorted(path.name for path in (past / "stacks").iterdir() if path.stat().st_size)
    expect(len(stacks) >= ranks, f"stacks of {stacks} only")
    if not place.gpus:
        return Seen(text=first.detail)
    entries = {path.name: _collectives(path) for path in sorted((past / "flight-recorder").iterdir())}
    expect(len(entries) == ranks, f"flight recorders of {list(entries)} only")
    expect(any(entries.values()), f"no flight recorder has a collective that did not end: {list(entries)}")
    return Seen(text=first.detail)


def _collectives(path: Path) -> list[str]:
    """Return the collectives that had not ended, by the dump of torch's flight recorder."""
    with path.open("rb") as file:
        recorded = pickle.load(file)
    return [entry["profiling_name"] for entry in recorded["entries"] if entry["state"] != "completed"]


def check_lightning(place: Place, folder: Path) -> Seen:
    """Train with the example for Lightning that is shipped, on GPUs."""
    ranks = place.ranks(2)
    job: dict[str, Any] = {
        "train": None,
        "command": ["python", "train.py", "--steps", "200"],
        "success": {"steps": 200, "log": r"step 200 loss 0\.0\d+", "files": ["results/model.ckpt"]},
        "outputs": ["results/*"],
    }
    box = box_of(folder / "box", place, {}, ranks=ranks, **job)
    checkout = Path(layout.__file__).parents[2]
    shutil.copytree(checkout / "configs" / "lightning", box / layout.CODE)
    shutil.copytree(checkout / "vastrun", box / layout.PACKAGES / "vastrun")
    with supervised(box) as run:
        outcome = run.outcome()
        expect_reason(run, outcome, "finished")
    missed = [check.text for check in outcome.checks if not check.holds]
    expect(not missed, "; ".join(missed))
    return Seen(text=f"{ranks} ranks, 200 steps")


def check_profile(place: Place, folder: Path) -> Seen:
    """Profile three steps of a training: the trace has them, their parts, and on a GPU its kernels."""
    settings: Settings = {"profile": {"step": 8, "steps": 3}}
    with supervised(box_of(folder / "box", place, settings)) as run:
        outcome = run.outcome()
        expect_reason(run, outcome, "finished")
    path = run.box / f"{PROFILES}/trace-step-8.json.gz"
    expect(path.exists(), f"no trace was written: {run.log()[-2000:]}")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = {event["name"] for event in events if event.get("cat") == "user_annotation"}
    missing = {"step 8", "step 9", "step 10", "forward", "backward", "optimizer"} - marks
    expect(not missing, f"the trace has no {missing}")
    kernels = [event for event in events if event.get("cat") == "kernel"]
    expect(kernels or not place.gpus, "the trace has no kernel of the GPU")
    return Seen(text=f"{len(events)} events, {len(kernels)} kernels")
