"""A program that saves as LAYOUT says and continues by itself from what it finds, without a word to vastrun.

Each layout is one that public programs have. Every file is written in two halves, a pause between them.
"""

import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

LAST_STEP, SAVE_EVERY = 40, 5
_PAUSE_S = 0.15

State = dict[str, Any]


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content)
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        time.sleep(_PAUSE_S)
        file.write(text[len(text) // 2 :])


class Files:
    """The files of a step, and then one that names it; without it, the newest step with all files counts."""

    def __init__(self, *files: str, tracker: str | None = None, has_log: bool = False) -> None:
        self._files, self._tracker, self._has_log = files, tracker, has_log

    def save(self, root: Path, state: State) -> None:
        if self._has_log:  # it grows ten times a second from now on
            self._has_log = False
            Thread(target=self._log, args=(root / "train.log",), daemon=True).start()
        for file in self._files:
            _write(root / "out" / file.format(state["step"]), state)
        if self._tracker:
            _write(root / "out" / self._tracker, state["step"])

    def load(self, root: Path) -> State:
        steps = range(LAST_STEP, 0, -1)
        for step in steps if not self._tracker else [json.loads((root / "out" / self._tracker).read_text())]:
            with suppress(FileNotFoundError):
                states = [json.loads((root / "out" / file.format(step)).read_text()) for file in self._files]
                assert all(state == states[0] for state in states), "files of two moments"
                return dict(states[0])
        raise FileNotFoundError

    def _log(self, path: Path) -> None:
        with path.open("a") as log:
            while True:
                print(time.time(), file=log, flush=True)
                time.sleep(0.1)


class Renamed:
    """One file, which each save replaces."""

    def save(self, root: Path, state: State) -> None:
        _write(root / "last.tmp", state)
        (root / "last.tmp").replace(root / "last.json")

    def load(self, root: Path) -> State:
        return dict(json.loads((root / "last.json").read_text()))


class Database:
    """A database that stays open; each save is a transaction, after 50 others."""

    _open: sqlite3.Connection | None = None

    def save(self, root: Path, state: State) -> None:
        if self._open is None:
            self._open = sqlite3.connect(root / "study.db")
            self._open.execute("PRAGMA journal_mode=WAL")
            self._open.execute("CREATE TABLE IF NOT EXISTS states (step INTEGER PRIMARY KEY, state TEXT)")
        for row in (*((-number, "x" * 1000) for number in range(1, 51)), (state["step"], json.dumps(state))):
            self._open.execute("REPLACE INTO states VALUES (?, ?)", row)
            self._open.commit()

    def load(self, root: Path) -> State:
        if not (root / "study.db").is_file():
            raise FileNotFoundError
        with closing(sqlite3.connect(root / "study.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (text,) = database.execute("SELECT state FROM states ORDER BY step DESC").fetchone()
            return dict(json.loads(text))


LAYOUTS: dict[str, Any] = {
    "deepspeed": Files("global_step{}/model.pt", "global_step{}/zero_pp_rank_0.pt", tracker="latest"),
    "tensorflow": Files("ckpt-{}.data-00000-of-00001", "ckpt-{}.index", tracker="checkpoint"),
    "mmengine": Files("epoch_{}.pth", tracker="last_checkpoint"),
    "megatron": Files("iter_{:07}/0.pt", "iter_{:07}/1.pt", tracker="latest_checkpointed_iteration.txt"),
    "pairs": Files("G_{}.pth", "D_{}.pth"),
    "log": Files("model_{}.pt", has_log=True),
    "rename": Renamed(),
    "sqlite": Database(),
}


def newest_step(layout: str, folder: Path) -> int:
    """Return the step at which the program would continue from the files in a folder; 0: at none."""
    with tempfile.TemporaryDirectory() as copy, suppress(FileNotFoundError):  # SQLite writes when it reads
        step: int = LAYOUTS[layout].load(Path(shutil.copytree(folder, copy, dirs_exist_ok=True)))["step"]
        return step
    return 0


def main(layout: str, root: Path, step_s: float) -> None:
    """Train from the newest state to the last step."""
    state: State = {"step": 0, "weights": [0.1 * number for number in range(8)]}
    with suppress(FileNotFoundError):
        state = LAYOUTS[layout].load(root)
    print(f"starts after step {state['step']}", flush=True)
    for step in range(state["step"] + 1, LAST_STEP + 1):
        time.sleep(step_s)
        state = {"step": step, "weights": [(3.7 * w * (1 - w) + step) % 1.0 for w in state["weights"]]}
        print(f"step {step}", flush=True)
        if step % SAVE_EVERY == 0:
            LAYOUTS[layout].save(root, state)
            print(f"saved step {step}", flush=True)
    _write(root / "results" / "weights.json", {"weights": state["weights"]})


if __name__ == "__main__":
    main(os.environ["LAYOUT"], Path(), float(os.environ["STEP_S"]))
