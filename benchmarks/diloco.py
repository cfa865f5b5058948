"""DiLoCo beside DDP on two nodes: samples a second over a slow link, and what equally many samples teach."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.box import environment, prepare
from benchmarks.slow_link import Machine, slow_link
from tests.trainer.supervision.meeting import free_port
from vastrun.contract import layout
from vastrun.contract.config import DilocoConfig, ModelConfig, TrainConfig, WandbConfig
from vastrun.contract.data_config import DataConfig

MBITS, DELAY_S = 10, 0.05
EVERY = 20
BATCH = 16
TIMED_STEPS = 60
LEARNT_STEPS = 400
SEEDS = (0, 1)
LEARNT = ModelConfig(dim=32, depth=2, heads=2, patch=4)
"""So small that a CPU takes many steps: what is learnt does not depend on the link."""

CONFIG = replace(
    TrainConfig(),
    batch=BATCH,
    model=ModelConfig(dim=96, depth=4, patch=4),
    data=(DataConfig(train=128, test=32),),
    wandb=WandbConfig(mode="off"),
    plots=False,
    diloco=DilocoConfig(every=EVERY),
)


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What node 0 tells of a training on two nodes."""

    samples_per_s: float
    """Of the second half of its steps."""
    loss: float
    """Mean of the last tenth of its reports."""
    nrmse: float
    """Rollout on the test set, of the weights that all nodes hold."""


def run() -> None:
    """Two tables: on the slow link, and what the same number of samples teaches."""
    with tempfile.TemporaryDirectory() as root:
        print(f"two nodes, one rank each, {MBITS} Mbit/s and {1000 * DELAY_S:g} ms each way, batch {BATCH}:")
        speeds = {strategy: _timed(Path(root), strategy) for strategy in ("ddp", "diloco")}
        times = speeds["diloco"].samples_per_s / speeds["ddp"].samples_per_s
        print(f"  diloco   {times:8.1f} times ddp", flush=True)
        print(f"after {LEARNT_STEPS * BATCH} samples, on the loopback:", flush=True)
        rounds = [
            {strategy: _learn(Path(root), strategy, seed) for strategy in ("ddp", "diloco")} for seed in SEEDS
        ]
        print(f"of {len(SEEDS)} seeds, mean (lowest..highest):")
        for strategy in ("ddp", "diloco"):
            found = [each[strategy] for each in rounds]
            loss, nrmse = (_spread([getattr(each, name) for each in found]) for name in ("loss", "nrmse"))
            print(f"  {strategy:<8} loss {loss}   rollout nRMSE {nrmse}")


def _timed(root: Path, strategy: str) -> Learnt:
    with slow_link(bits_per_s=1e6 * MBITS, delay_s=DELAY_S) as link:
        found = train(root / f"slow-{strategy}", strategy, TIMED_STEPS, machines=link.machines)
        summary = f"{link.carried_mb:.1f} MB in {TIMED_STEPS} steps, the beginning included"
    print(f"  {strategy:<8} {found.samples_per_s:8.2f} samples/s, {summary}", flush=True)
    return found


def _learn(root: Path, strategy: str, seed: int) -> Learnt:
    found = train(root / f"{strategy}-{seed}", strategy, LEARNT_STEPS, seed=seed, model=LEARNT)
    summary = f"loss {found.loss:.4f}   rollout nRMSE {found.nrmse:.4f}"
    print(f"  {strategy:<8} seed {seed}   {summary}", flush=True)
    return found


def train(
    folder: Path,
    strategy: str,
    steps: int,
    *,
    seed: int = 0,
    model: ModelConfig = CONFIG.model,
    machines: Sequence[Machine] = (),
) -> Learnt:
    """Train on two nodes, each under a supervisor of its own; without machines both on the loopback."""
    config = replace(
        CONFIG,
        strategy=strategy,
        model=model,
        steps=steps,
        seed=seed,
        checkpoint_every=steps,
        log_every=max(1, steps // 20),
        diloco=CONFIG.diloco if strategy == "diloco" else DilocoConfig(),
    )
    boxes = [prepare(folder / f"node-{node}", config, nodes=2, ranks=1) for node in (0, 1)]
    host = machines[0].address if machines else "127.0.0.1"
    nodes, port = [], free_port()
    for node, box in enumerate(boxes):
        command = [sys.executable, "-m", "vastrun.trainer.supervise"]
        place = {"VASTRUN_NODE": str(node), "VASTRUN_RENDEZVOUS": f"{host}:{port}"}
        nodes.append(
            subprocess.Popen(
                machines[node].command(*command) if machines else command,
                env=environment(box) | place,
                stdout=subprocess.DEVNULL,
            )
        )
    statuses = [process.wait() for process in nodes]
    if any(statuses):
        sys.exit((boxes[0] / layout.LOG).read_text()[-3000:])
    points = [json.loads(line) for line in (boxes[0] / layout.METRICS).read_text().splitlines()]
    final = json.loads((boxes[0] / layout.FINAL).read_text())
    first, last = points[len(points) // 2], points[-1]
    seconds = last["at"] - first["at"]
    return Learnt(
        samples_per_s=(last["step"] - first["step"]) * BATCH / seconds,
        loss=statistics.mean(point["loss"] for point in points[-max(1, len(points) // 10) :]),
        nrmse=final["scores"]["rollout_nrmse"],
    )


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.4f} ({min(values):.4f}..{max(values):.4f})"


if __name__ == "__main__":
    run()
