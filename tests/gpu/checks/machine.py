"""The machine: what the preflight finds, how GPUs can talk, and who opens which of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.figures import min_limit
from tests.gpu.check import Figure, Place, Seen, expect, figures_of
from tests.gpu.ranks import apart, together
from tests.gpu.trainings import Settings, begin, box_of, learn
from vastrun.contract import layout


def check_preflight(place: Place, folder: Path) -> Seen:
    """Look at the machine as a box does before a training, and at its GPUs by NVML as a training does."""
    box = box_of(folder / "box", place, {})
    said = apart(_preflight, box, place.gpus)
    if not place.gpus:
        expect("no GPU" in said, said)
        return Seen(text="the CPU is described")
    from vastrun.onstart.supervision.launch import healthy_gpus

    answering = healthy_gpus() or ()
    expect(len(answering) == place.gpus, f"{len(answering)} GPUs answer nvidia-smi, not {place.gpus}")
    known, samples = apart(_samples, place.gpus)
    expect(list(answering) == known, f"nvidia-smi has {answering}, torch {known}")
    for sample in samples:
        expect(sample.memory_mib, f"NVML tells no memory: {sample}")
    return Seen(text=" · ".join(line for line in said.splitlines() if "GPU" in line)[:300])


def _preflight(box: Path, gpus: int) -> str:
    from vastrun.onstart.boot.preflight.__main__ import main

    os.environ |= {"VASTRUN_BOX": str(box), "VASTRUN_GPUS": str(gpus), "VASTRUN_SETUP": "0"}
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(["machine"])
    expect(code == 0, f"the preflight refuses this machine ({code}): {err.getvalue()}")
    return out.getvalue()


def _samples(gpus: int) -> tuple[list[str], list[Any]]:
    """Return the UUIDs of all GPUs as torch has them, and what NVML says of each."""
    import pynvml

    from vastrun.trainer.distributed.rank import Rank
    from vastrun.trainer.telemetry.figures import uuids_in_use
    from vastrun.trainer.telemetry.gpus import read_sample

    uuids = uuids_in_use(Rank(rank=0, local_rank=0, world_size=gpus, box=Path()))
    pynvml.nvmlInit()
    return uuids, [read_sample(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids]


def check_communication(place: Place, folder: Path) -> Seen:
    """Have all GPUs talk as the preflight does, in the first way that works."""
    box, ranks = box_of(folder / "box", place, {}), place.ranks(64) if place.gpus else 2
    (box / layout.RUN).mkdir()
    apart(_communicate, box, ranks, "nccl" if place.gpus else "gloo")
    record = json.loads((box / layout.PREFLIGHT).read_text())
    last = record["trials"][-1]
    expect(last["fault"] is None, f"no way works: {record['trials']}")
    if last["gb_per_s"] is None:
        return Seen(text="one GPU: no link to measure")
    way = " ".join(f"{name}={value}" for name, value in record["env"].items()) or "as NCCL chooses"
    figure = Figure(name=f"all-reduce of {ranks}, {way}", value=last["gb_per_s"], unit="GB/s")
    return Seen(figures=[figure])


def _communicate(box: Path, ranks: int, backend: str) -> None:
    from vastrun.onstart.boot.preflight.comm import check_communication as check

    check(box, ranks, backend)


def check_fall_back(place: Place, folder: Path) -> Seen:
    """Try every way of two GPUs to talk; one that hangs is given up, and the next is taken."""
    ranks = place.ranks(2)
    rates, chosen = apart(_ways, ranks, "nccl" if place.gpus else "gloo")
    expect(chosen == 1, f"after a way that hangs, way {chosen} was taken")
    limit = min_limit(0.5) if place.gpus else None
    return Seen(figures=figures_of("GB/s", limit, rates))


def _ways(ranks: int, backend: str) -> tuple[dict[str, float], int]:
    """Return GB/s by way, and which was taken where the first hangs."""
    from functools import partial

    from vastrun.onstart.boot.preflight import comm

    def try_way(env: Mapping[str, str], limit_s: float) -> comm.CommTrial:
        work = partial(comm.all_reduce, backend, comm.START_S + limit_s)
        return comm.try_settings(work, ranks, env, limit_s)

    ways, rates = comm.SETTINGS[backend], {}
    for env, limit_s in ways:
        trial = try_way(env, limit_s)
        name = " ".join(env) or "as it chooses"
        expect(trial.fault is None, f"{name}: {trial.fault}")
        rates[name] = trial.gb_per_s or 0.0
    after_a_hang = [(ways[0][0], 0.0), *(ways[1:] or ways)]
    return rates, next(n for n, way in enumerate(after_a_hang) if try_way(*way).fault is None)


def check_one_gpu_each(place: Place, folder: Path) -> Seen:
    """Train with a loader's thread on every rank: no rank opens another one's GPU."""
    settings: Settings = {"strategy": "ddp", "data": {**_DATA, "keep": "host"}, "batch": 8}
    ranks = place.ranks(64) if place.gpus else 2
    while settings["batch"] % ranks:
        ranks -= 1
    box = box_of(folder / "box", place, settings, ranks=ranks)
    found = together(place, _opened, ranks, box, settings)
    for rank, (opened, _) in enumerate(found):
        expect(opened == ([rank] if place.gpus else []), f"rank {rank} has opened the GPUs {opened}")
    listed = found[0][1]
    if not listed:
        return Seen(text=f"{ranks} ranks; nvidia-smi shows no processes in this container")
    most = max(Counter(listed).values())
    expect(most == 1, f"nvidia-smi lists {most} processes on one GPU: {listed}")
    return Seen(text=f"{ranks} ranks, {len(listed)} processes in nvidia-smi")


_DATA: Settings = {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9}


def _opened(ranks: Any, box: Path, settings: Settings) -> tuple[list[int], list[str]]:
    """Return the GPUs that this process has a context on, and on rank 0 the GPU of each process."""
    import torch

    session, _ = learn(begin(ranks, box, settings), 0, 8)
    ranks.wait_for_all()
    here = range(torch.cuda.device_count()) if ranks.device.type == "cuda" else ()
    opened = [number for number in here if torch._C._cuda_hasPrimaryContext(number)]
    listed = _listed() if ranks.rank.is_first and opened else []
    ranks.wait_for_all()
    session.loader.close()
    return opened, listed


def _listed() -> list[str]:
    """Return the UUID of the GPU of each process that computes, but for those of others."""
    query = ["nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == 1]
    return [uuid for pid, uuid in rows if Path(f"/proc/{pid}/cwd").exists()]
