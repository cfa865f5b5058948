"""W&B over two attempts of one launch: one run, in its group, with the state in which the last one ended."""

import json
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from tests.trainer.telemetry.wandb_server import WandbServer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.torch]

WITHIN_S = 500.0
"""Two ranks import Lightning on a busy computer, twice."""
JOB = """\
name: tracked
resources: {gpus: 0, disk_gb: 8, interruptible: true}
ranks: 2
limits: {hours: 0.5, usd: 1, usd_per_hour: 0.36, stall_s: 400}
code: {path: code}
command: python train.py
checkpoints: {files: saved/*, every_s: 0.2}
success: {log: all is well}
retry: {preempted: 1}
"""
OWN = """\
import os, time
from pathlib import Path

import wandb

resume, rank = os.environ["VASTRUN_RESUME"], int(os.environ["RANK"])
done = int(Path(resume).read_text()) if resume else 0
run = wandb.init(project="own")
for step in range(done + 1, 7):
    run.log({"loss": 1 / step}, step=step, commit=True)  # with a step, W&B would wait for the next one
    if step == 3:
        if rank == 0:
            Path("saved").mkdir()
            Path("saved/new").write_text("3")
            Path("saved/new").rename("saved/step-3.pt")
        time.sleep(600)
print("all is well", flush=True)
"""
LIGHTNING = """\
import os, time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from torch.utils.data import DataLoader, TensorDataset

from vastrun.integrations import leave, resume_path
from vastrun.integrations.lightning import LightningCallback


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)

    def training_step(self, batch):
        loss = (self.net(batch[0]) - 2 * batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Waits(lightning.Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 3 and not resume_path():
            time.sleep(600)


lightning.seed_everything(0)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=6,
    callbacks=[
        Waits(),
        LightningCallback(),
        ModelCheckpoint(dirpath="saved", filename="{step}", save_top_k=-1),
    ],
    logger=WandbLogger(project="own"),
    log_every_n_steps=1,
    enable_progress_bar=False,
)
data = TensorDataset(torch.rand(8, 1))
trainer.fit(Line(), DataLoader(data, batch_size=4), ckpt_path=resume_path(), weights_only=False)
if trainer.is_global_zero:
    print("all is well", flush=True)
leave(0)
"""


def launch(terminal: Terminal, wandb: WandbServer, program: str, *more: str) -> tuple[str, ...]:
    """The words of a launch of the program on Vast, which reports to that server."""
    code = terminal.folder / "code"
    code.mkdir()
    (code / "train.py").write_text(program)
    (terminal.folder / "tracked.yaml").write_text(JOB)
    env = {**wandb.environment, "WANDB_SILENT": "true"}
    variables = [word for name, value in env.items() for word in ("--set", f"env.{name}={value}")]
    return ("launch", "tracked.yaml", "--provider", "vast", "-y", *variables, *more)


def until_home(terminal: Terminal, name: str) -> None:
    """Return once that checkpoint is in a snapshot that was downloaded."""
    found = f"runs/*/checkpoints/step-*/files/code/saved/{name}"
    eventually(lambda: [*terminal.folder.glob(found)], within_s=WITHIN_S, what=found)


def test_two_attempts_of_a_program_are_one_run_for_each_rank_that_finished(
    rented: Terminal, vast: VastEmulator, wandb: WandbServer
) -> None:
    words = launch(rented, wandb, OWN)
    started = rented.start(*words)
    until_home(rented, "step-3.pt")
    # W&B's own program sends what it has every few seconds, and nothing once its machine is gone.
    eventually(lambda: [len(run.history) for run in list(wandb.runs.values())] == [3, 3], within_s=WITHIN_S)
    vast.faults.add("outbid")
    done = started.end(within_s=WITHIN_S)
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["parent"]) == ("preempted", first["id"]), done.err
    assert done.exit_code == 0, done.err

    assert sorted(wandb.runs) == [first["id"], f"{first['id']}-rank1"]
    for run in wandb.runs.values():
        assert run.state == "finished"
        assert run.groups == {first["id"]}
        assert {line["_step"] for line in run.history} == set(range(1, 7))
    assert len(vast.instances) == 0


def test_two_attempts_of_a_lightning_program_are_one_run_that_finished(
    rented: Terminal, vast: VastEmulator, wandb: WandbServer
) -> None:
    pytest.importorskip("lightning")
    started = rented.start(*launch(rented, wandb, LIGHTNING))
    until_home(rented, "step=3.ckpt")
    vast.faults.add("outbid")
    done = started.end(within_s=WITHIN_S)
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["verdict"]) == ("preempted", "SUCCEEDED"), done.err

    assert list(wandb.runs) == [first["id"]]
    (run,) = wandb.runs.values()
    assert run.state == "finished"
    assert run.groups == {first["id"]}
    outcome = json.loads((Path(second["out_dir"]) / "details" / "outcome.json").read_text())
    told = {name: outcome["wandb"][name] for name in ("id", "mode", "state")}
    assert told == {"id": first["id"], "mode": "online", "state": "finished"}
