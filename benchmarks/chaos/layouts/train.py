"""A program that saves as LAYOUT says and continues by itself from what it finds, without a word to vastrun.

Each layout is one that public programs have. Every file is written in two halves, a pause between them.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
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


def _read(path: Path) -> State:
    state: State = json.loads(path.read_text())
    return state


class Tracked:
    """The files of a step, and then one that names the newest step."""

    def __init__(self, tracker: str, *files: str) -> None:
        self._tracker, self._files = tracker, files

    def save(self, root: Path, state: State) -> None:
        for file in self._files:
            _write(root / "out" / file.format(state["step"]), state)
        _write(root / "out" / self._tracker, state["step"])

    def load(self, root: Path) -> State:
        step = json.loads((root / "out" / self._tracker).read_text())
        states = [_read(root / "out" / file.format(step)) for file in self._files]
        assert all(state == states[0] for state in states), "files of two moments"
        return states[0]


class Untracked(Tracked):
    """The files of a step alone; the newest step that has all of them counts."""

    def save(self, root: Path, state: State) -> None:
        for file in self._files:
            _write(root / "out" / file.format(state["step"]), state)

    def load(self, root: Path) -> State:
        for step in range(LAST_STEP, 0, -1):
            with suppress(FileNotFoundError):
                states = [_read(root / "out" / file.format(step)) for file in self._files]
                return states[0]
        raise FileNotFoundError


class Renamed:
    """One file, which each save replaces."""

    def save(self, root: Path, state: State) -> None:
        _write(root / "last.tmp", state)
        (root / "last.tmp").replace(root / "last.json")

    def load(self, root: Path) -> State:
        return _read(root / "last.json")


class Logged(Untracked):
    """A log that grows ten times a second beside the files."""

    def load(self, root: Path) -> State:
        Thread(target=self._log, args=(root / "train.log",), daemon=True).start()
        return super().load(root)

    def _log(self, path: Path) -> None:
        with path.open("a") as log:
            while True:
                print(time.time(), file=log, flush=True)
                time.sleep(0.1)


class Database:
    """A database that stays open; each save is a transaction."""

    def __init__(self) -> None:
        self._open: sqlite3.Connection | None = None

    def save(self, root: Path, state: State) -> None:
        if self._open is None:
            self._open = sqlite3.connect(root / "study.db")
            self._open.execute("PRAGMA journal_mode=WAL")
            self._open.execute("CREATE TABLE IF NOT EXISTS states (step INTEGER PRIMARY KEY, state TEXT)")
        for number in range(50):
            self._open.execute("REPLACE INTO states VALUES (?, ?)", (-number - 1, "x" * 1000))
            self._open.commit()
        self._open.execute("REPLACE INTO states VALUES (?, ?)", (state["step"], json.dumps(state)))
        self._open.commit()

    def load(self, root: Path) -> State:
        if not (root / "study.db").is_file():
            raise FileNotFoundError
        with sqlite3.connect(root / "study.db") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (text,) = database.execute("SELECT state FROM states ORDER BY step DESC").fetchone()
            state: State = json.loads(text)
            return state


LAYOUTS: dict[str, Any] = {
    "deepspeed": Tracked("latest", "global_step{}/mp_rank_00.pt", "global_step{}/zero_pp_rank_0.pt"),
    "tensorflow": Tracked("checkpoint", "ckpt-{}.data-00000-of-00001", "ckpt-{}.index"),
    "mmengine": Tracked("last_checkpoint", "epoch_{}.pth"),
    "megatron": Tracked(
        "latest_checkpointed_iteration.txt", "iter_{:07}/mp_rank_00.pt", "iter_{:07}/mp_rank_01.pt"
    ),
    "pairs": Untracked("", "G_{}.pth", "D_{}.pth"),
    "rename": Renamed(),
    "log": Logged("", "model_{}.pt"),
    "sqlite": Database(),
}


def newest_step(layout: str, root: Path) -> int:
    """Return the step at which a program would continue from the files in a folder; 0: at none."""
    with suppress(FileNotFoundError):
        step: int = LAYOUTS[layout].load(root)["step"]
        return step
    return 0


def main(layout: str, root: Path, step_s: float) -> None:
    """Train from the newest state to the last step."""
    state: State = {"step": 0, "weights": [0.1 * number for number in range(8)]}
    with suppress(FileNotFoundError):
        state = LAYOUTS[layout].load(root)
    print(f"starts after step {state['step']}", flush=True)
    save: Callable[[Path, State], None] = LAYOUTS[layout].save
    for step in range(state["step"] + 1, LAST_STEP + 1):
        time.sleep(step_s)
        state = {"step": step, "weights": [(3.7 * w * (1 - w) + step) % 1.0 for w in state["weights"]]}
        print(f"step {step}", flush=True)
        if step % SAVE_EVERY == 0:
            save(root, state)
            print(f"saved step {step}", flush=True)
    _write(root / "results" / "weights.json", {"weights": state["weights"]})


if __name__ == "__main__":
    main(os.environ["LAYOUT"], Path(), float(os.environ["STEP_S"]))
