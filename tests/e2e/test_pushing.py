"""A box that pushes its checkpoints by itself, and one that continues from them."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import JOBS, Terminal

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_the_last_checkpoint_is_at_the_url_when_the_run_is_over(terminal: Terminal, tmp_path: Path) -> None:
    there = tmp_path / "there"
    done = terminal.type("launch", str(JOBS / "learn.yaml"), "--set", f"checkpoints.push=file://{there}")

    assert done.exit_code == 0, done.err
    (run,) = there.iterdir()
    assert json.loads((run / "latest.json").read_text())["step"] == 30
    state = Path("step-000030", "__0_0.distcp")
    assert (run / state).read_bytes() == (terminal.outputs() / "checkpoints" / state).read_bytes()
    assert "push checkpoint step-000030 pushed" in (terminal.outputs() / "log.txt").read_text()
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_url_that_does_not_work_hurts_nothing(terminal: Terminal) -> None:
    nowhere = ("--set", "checkpoints.push=nowhere://x", "--set", "ranks=1")
    done = terminal.type("launch", str(JOBS / "learn.yaml"), *nowhere)
    assert done.exit_code == 0, done.err
    assert "push cannot push checkpoints" in (terminal.outputs() / "log.txt").read_text()


SECRETS = "secrets=[{name: AWS_ACCESS_KEY_ID}, {name: AWS_SECRET_ACCESS_KEY}]"


def pushed(bucket: Any, name: str) -> bytes:
    """What the bucket holds below the URL of the job."""
    content: bytes = bucket.get_object(Bucket="models", Key=f"demo/{name}")["Body"].read()
    return content


@pytest.mark.slow
def test_a_training_continues_from_a_bucket_when_nothing_came_home(terminal: Terminal, bucket: Any) -> None:
    terminal.variables |= {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    launch = ("launch", str(JOBS / "learn.yaml"), "--set", "checkpoints.push=s3://models/demo")
    launch += ("--set", "ranks=1", "--set", "train.wandb.mode=off")
    launch += ("--set", SECRETS, "--set", f"env={{AWS_ENDPOINT_URL: '{bucket.meta.endpoint_url}'}}")
    first = terminal.type(*launch)
    assert first.exit_code == 0, first.err
    run_id = terminal.status()["run"]["id"]
    assert json.loads(pushed(bucket, f"{run_id}/latest.json"))["step"] == 30
    state = "step-000030/__0_0.distcp"
    assert pushed(bucket, f"{run_id}/{state}") == (terminal.outputs() / "checkpoints" / state).read_bytes()
    shutil.rmtree(terminal.outputs() / "checkpoints")
    half = {"Bucket": "models", "Key": f"demo/{run_id}/step-000090/manifest.json"}
    bucket.copy_object(CopySource=f"models/demo/{run_id}/step-000030/manifest.json", **half)

    second = terminal.type(*launch, "--from", run_id, "--set", "train.steps=40")

    assert second.exit_code == 0, second.err
    log = (terminal.outputs() / "log.txt").read_text()
    assert re.search("checkpoint step-000090 at .* is incomplete", log)
    assert "resumes after step 30:" in log
    assert terminal.leftovers() == []
