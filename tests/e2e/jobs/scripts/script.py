"""Passes, exits 3, waits, continues, hangs: its argument says."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vastrun import beat


def passes():
    Path("result.txt").write_text("42\n")
    print("all is well")


def exits_3():
    sys.exit(3)


def waits():
    subprocess.Popen(["setsid", "sleep", "300"])
    step = 0
    while True:
        step += 1
        beat(step)
        print("step", step, flush=True)
        time.sleep(0.1)


def passes_once_told():
    """Trains until there is the file $GO."""
    trains_until_told()
    passes()


def trains_until_told():
    step = 0
    while not Path(os.environ["GO"]).exists():
        step += 1
        beat(step)
        time.sleep(0.1)


def lingers():
    """When asked to stop, it waits for the file $GO before it leaves its result."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    step = 0
    while not (asked and Path(os.environ["GO"]).exists()):
        step += 1
        beat(step)
        print("step", step, "." * 60, flush=True)
        time.sleep(0.1)
    Path("result.txt").write_text("42\n")
    sys.exit(143)


def saves_when_asked():
    """Tells no step. When asked to stop, it saves, which takes a while."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    print("at work", os.environ["MOOD"], flush=True)
    while not asked:
        time.sleep(0.05)
    time.sleep(1)
    Path("result.txt").write_text("42\n")
    print("saved", flush=True)


def continues():
    """Saves a checkpoint and waits, or passes where it finds one to continue from."""
    name, state = "step-000007", b"weights"
    if Path(os.environ["VASTRUN_BOX"], "resume", name, "state").is_file():
        return passes()
    checkpoint = Path(os.environ["VASTRUN_RUN"], "checkpoints", name)
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_bytes(state)
    file = {"path": "state", "size": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 7, "files": [file]}))
    (checkpoint.parent / "latest.json").write_text(json.dumps({"step": 7, "path": name}))
    return waits()


def continues_once_told():
    """Trains until there is the file $GO; then as `continues`."""
    trains_until_told()
    continues()


def saves_its_own():
    """Saves folders as the Trainer of Hugging Face does, then waits; from the third one on it passes."""
    resume = sys.argv[sys.argv.index("--from") + 1] if "--from" in sys.argv else ""
    assert resume == os.environ["VASTRUN_RESUME"]
    state = json.loads(Path(resume, "trainer_state.json").read_text()) if resume else {"global_step": 0}
    step = state["global_step"]
    print("continues after step", step, flush=True)
    for number in range(step + 10, 40, 10):
        folder = Path(f"own/checkpoint-{number}")
        folder.mkdir(parents=True)
        (folder / "training_args.bin").write_bytes(b"arguments")
        (folder / "nested").mkdir()
        (folder / "nested" / "optimizer.pt").write_bytes(b"moments" * number)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": number}))
    if step < 30:
        half = Path("own/checkpoint-90")
        half.mkdir()
        (half / "training_args.bin").write_bytes(b"arguments")
        waits()
    assert Path(resume, "nested", "optimizer.pt").read_bytes() == b"moments" * step
    passes()


def hangs():
    beat(1)
    time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
