"""Saves step 10 at once and step 20 slowly. Arguments: how it saves, seconds, the slice that kills it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

STYLE, SECONDS, KILLED_AT = sys.argv[1], float(sys.argv[2]), sys.argv[3]
SLICES = 10


def main():
    step = read(os.environ["VASTRUN_RESUME"])
    print("continues after step", step, flush=True)
    for number in range(step + 10, 30, 10):
        while (
            number == 20
            and not step
            and not Path(os.environ["VASTRUN_RUN"], "checkpoints", "latest.json").exists()
        ):
            time.sleep(0.1)
        print("writing step", number, flush=True)
        save(number, slowly=number == 20)
        print("saved step", number, flush=True)
    if step < 20:
        time.sleep(600)
    Path("result.txt").write_text("42\n")
    print("all is well", flush=True)


def save(number, *, slowly):
    """One file; or a folder of parts, of which `marked` has what Hugging Face's Trainer writes last."""
    path = Path(f"own/checkpoint-{number}")
    path.parent.mkdir(exist_ok=True)
    if STYLE == "file":
        with path.with_suffix(".bin").open("wb") as file:
            for part in range(SLICES):
                write(file, number, part, slowly)
        return
    path.mkdir(exist_ok=True)
    for part in range(SLICES):
        name = "training_args.bin" if (STYLE, part) == ("marked", 0) else f"part-{part}.bin"
        with (path / name).open("wb") as file:
            write(file, number, part, slowly)
    if STYLE == "marked":
        (path / "trainer_state.json").write_text(json.dumps({"global_step": number}))


def write(file, number, part, slowly):
    file.write(f"{number} ".encode() * 1000)
    file.flush()
    if slowly and str(part) == KILLED_AT and not os.environ["VASTRUN_RESUME"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if slowly:
        time.sleep(SECONDS / SLICES)


def read(resume):
    """Return the step of a checkpoint, which must be whole; 0 where there is none."""
    if not resume:
        return 0
    path = Path(resume)
    files = [path] if path.is_file() else sorted(path.glob("*.bin"))
    text = b"".join(file.read_bytes() for file in files).decode()
    (number,) = set(text.split())
    assert len(text.split()) == 1000 * SLICES, "half a checkpoint"
    assert STYLE != "marked" or json.loads((path / "trainer_state.json").read_text())["global_step"] == int(
        number
    )
    return int(number)


main()
