"""A killed program continues from its newest complete checkpoint, and ends as an undisturbed one does."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import Launched, Launcher
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.contract.outcome import RestoredSnapshot

pytestmark = pytest.mark.torch

CHECKPOINTS = {"files": "checkpoints/*", "keep": 2, "every_s": 0.1}
OFTEN: dict[str, Any] = {"checkpoints": {"every_s": 0.5}}
SLOW: dict[str, Any] = {"checkpoints": {**CHECKPOINTS, "every_s": 1.0}}
TRAINS = """
    import json, pickle, time, zipfile
    def has_snapshot_of_step_20():
        try:
            folder = Path(os.environ["VASTRUN_RUN"], "checkpoints")
            found = [path.read_text() for path in folder.glob("*/state.json")]
        except FileNotFoundError:  # a newer one takes its place
            return False
        return any("step_20.pt" in json.loads(one)["resume"] and json.loads(one)["is_calm"] for one in found)
    path = sys.argv[sys.argv.index("--from") + 1] if "--from" in sys.argv else ""
    assert path == os.environ["VASTRUN_RESUME"]
    step, numbers = 0, [0.0]
    if path:
        with zipfile.ZipFile(path) as file:
            step, numbers = pickle.loads(file.read("data.pkl"))
    print("starts after step", step, flush=True)
    Path("checkpoints").mkdir(exist_ok=True)
    starts = int(os.environ["VASTRUN_RESTART"])
    while step < 40:
        step += 1
        time.sleep(0.05)
        numbers.append(numbers[-1] * 0.9 + step)
        if step % 10 == 0:
            with zipfile.ZipFile(f"checkpoints/step_{step}.pt", "w") as file:
                file.writestr("data.pkl", pickle.dumps((step, numbers)))
        if step == 25 and starts == 0:
            while not has_snapshot_of_step_20():
                time.sleep(0.05)
            half = open("checkpoints/step_25.pt", "wb")
            half.write(b"PK\\x03\\x04 half")
            half.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    Path("weights").write_text(str(numbers[-1]))
"""
WAITS = """
    import time
    print("resumes", os.environ["VASTRUN_RESUME"], flush=True)
    folder = Path("checkpoints/checkpoint-5")
    if not os.environ["VASTRUN_RESUME"]:
        folder.mkdir(parents=True)
        (folder / "training_args.bin").write_bytes(b"arguments")
        (folder / "optimizer.pt").write_bytes(b"moments")
        (folder / "trainer_state.json").write_text("{}")
        heart.beat(5)
        while True:
            time.sleep(0.05)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Launcher]:
    """Starts a program of one rank with snapshots, each on a box of its own."""
    runs: list[Launched] = []

    def start(program: str, **job: Any) -> Launched:
        job = {"ranks": 1, "checkpoints": CHECKPOINTS, **job}
        runs.append(Launched(tmp_path / f"box-{len(runs)}", program, **job))
        return runs[-1]

    yield start
    for run in runs:
        run.end()
        assert run.processes() == []


def undisturbed(steps: int) -> str:
    """The weights of a program that was never killed."""
    number = 0.0
    for step in range(1, steps + 1):
        number = number * 0.9 + step
    return str(number)


def test_a_killed_program_continues_from_its_newest_complete_checkpoint_with_the_same_weights(
    start: Launcher,
) -> None:
    command = ["python", "program.py", "{resume:--from}"]
    run = start(TRAINS, command=command, restarts={"signal": 1}, **SLOW)
    outcome, log = run.outcome(), run.log()

    assert outcome.reason == "finished", "\n".join(log)
    assert outcome.starts[0].checkpoint in (20, 21)
    assert "rank0 starts after step 0" in log
    assert "rank0 starts after step 20" in log
    assert (run.box / "code/weights").read_text() == undisturbed(40)
    assert (run.box / "tmp/incomplete/code/checkpoints/step_25.pt").is_file()
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.step, outcome.checkpoint.intact) == (40, True)


def test_half_a_file_of_a_killed_rank_is_not_kept_while_the_other_ranks_live_on(start: Launcher) -> None:
    dies = """
        import time
        path = Path("checkpoints/step_10.pkl")
        if os.environ["RANK"] == "1":
            time.sleep(60)
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(b"half")
            file.flush()
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    run = start(dies, ranks=2, checkpoints={**CHECKPOINTS, "every_s": 5.0})
    assert run.outcome().reason == "signal"
    assert newest_first(run.box / layout.CHECKPOINTS) == []


def on_the_next_machine(first: Launched, start: Launcher, program: str) -> Launched:
    """The program's second start, with the snapshots of the first one, which is killed once it has any."""
    eventually((first.box / layout.CHECKPOINTS / "latest.json").exists)
    first.end()
    shutil.copytree(first.box / layout.CHECKPOINTS, first.box.with_name("box-1") / layout.RESUME)
    return start(program)


def test_a_machine_that_comes_next_continues_from_the_folder_that_was_kept_while_the_first_one_ran(
    start: Launcher,
) -> None:
    run = start(WAITS)
    latest = run.box / layout.CHECKPOINTS / "latest.json"
    eventually(latest.exists)
    assert json.loads(latest.read_text()) == {"step": 5, "path": "step-000005"}
    second = on_the_next_machine(run, start, WAITS)
    assert second.outcome().reason == "finished", second.log()
    assert f"rank0 resumes {second.box.resolve()}/code/checkpoints/checkpoint-5" in second.log()
    assert sorted(path.name for path in (second.box / "code/checkpoints/checkpoint-5").iterdir()) == [
        *("optimizer.pt", "trainer_state.json", "training_args.bin")
    ]


@pytest.mark.parametrize(("begins", "is_warned"), [(1, True), (6, False)])
def test_a_restored_program_that_begins_anew_is_told_with_both_steps(
    begins: int, is_warned: bool, start: Launcher
) -> None:
    saves = f"""
        import time
        first, restored = {begins}, Path("state.bin").exists()
        with open(os.path.join(os.environ["VASTRUN_RUN"], "metrics.jsonl"), "a") as curve:
            for step in range(first if restored else 1, 10 if restored else 6):
                heart.beat(step)
                curve.write('{{"step": %d}}\\n' % step)
        time.sleep(0 if restored else 2.5)
        Path("state.bin").write_bytes(b"weights")
        heart.beat(9)
        time.sleep(0 if restored else 60)
    """
    outcome = (second := on_the_next_machine(start(saves, **OFTEN), start, saves)).outcome()
    assert outcome.reason == "finished", second.log()
    assert outcome.restored is not None
    assert (outcome.restored.step, outcome.restored.first_step) == (5, begins)
    warning = f"supervisor WARNING: restored at step 5, and the program began at step {begins}"
    assert (warning in second.log()) == is_warned


@pytest.mark.parametrize(("loads", "read"), [("", ""), ("Path('state.bin').read_bytes()", "code/state.bin")])
def test_of_a_restored_program_that_reports_no_steps_it_is_told_what_it_read(
    loads: str, read: str, start: Launcher
) -> None:
    saves = f"""
        import time
        if Path("state.bin").exists():
            {loads or "pass"}
        else:
            Path("state.bin").write_bytes(b"weights")
            time.sleep(60)
    """
    outcome = (second := on_the_next_machine(start(saves, **OFTEN), start, saves)).outcome()
    assert outcome.restored == RestoredSnapshot(step=0, read=read), second.log()
    warning = "supervisor WARNING: the program read no restored file before its next snapshot"
    assert (warning in second.log()) is not bool(read)


def test_a_program_that_saves_when_it_is_stopped_has_that_checkpoint_kept(start: Launcher) -> None:
    saves = """
        import time
        def save(number, frame):
            Path("last.pkl").write_bytes(b"weights")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        heart.beat(1)
        while True:
            time.sleep(0.05)
    """
    run = start(saves, checkpoints={**CHECKPOINTS, "files": "*.pkl"})
    run.until_steps(1)
    run.send(signal.SIGTERM)
    run.outcome()
    (checkpoint,) = newest_first(run.box / layout.CHECKPOINTS)
    assert (checkpoint / "files/code/last.pkl").read_bytes() == b"weights"


def test_without_checkpoints_in_the_job_a_program_has_an_empty_variable_and_its_own_braces(
    start: Launcher,
) -> None:
    shows = 'print("got", repr(os.environ["VASTRUN_RESUME"]), sys.argv[1], flush=True)'
    run = start(shows, checkpoints=None, command=["python", "program.py", "{resume}"])
    assert run.outcome().reason == "finished"
    assert "rank0 got '' {resume}" in run.log()


KILLED_AT_RANDOM = """
    import pickle, random, time, zipfile
    style, seed = os.environ["STYLE"], int(os.environ["SEED"])
    restart = int(os.environ["VASTRUN_RESTART"])
    snapshots = Path(os.environ["VASTRUN_RUN"], "checkpoints")
    chance = random.Random(100 * seed + restart)

    *parts, mark = {
        "plain": [""],
        "hugging face": ["training_args.bin", "optimizer.pt", "trainer_state.json"],
        "dcp": ["__0_0.distcp", "__1_0.distcp", ".metadata"],
    }[style]

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def write(path, content, dies):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            time.sleep(0.01)
            if dies:
                kill()
            file.write(content[len(content) // 2 :])

    def save(step, dies):
        state = pickle.dumps((step, numbers))
        if style == "plain":
            with open(f"own/step_{step}.pt", "wb") as raw, zipfile.ZipFile(raw, "w") as file:
                file.writestr("data.pkl", state)
                raw.flush()
                if dies:
                    kill()
            return
        folder = Path(f"own/checkpoint-{step}")
        folder.mkdir(exist_ok=True)
        for number, name in enumerate(parts):
            write(folder / name, state, dies and number == 1)
        (folder / mark).write_text("{}")

    def load(path):
        if style == "plain":
            with zipfile.ZipFile(path) as file:
                return pickle.loads(file.read("data.pkl"))
        assert (Path(path) / mark).read_text() == "{}"
        one, other = (pickle.loads((Path(path) / part).read_bytes()) for part in parts)
        assert one == other
        return one

    path = os.environ["VASTRUN_RESUME"]
    step, numbers = load(path) if path else (0, [0.0])
    print("starts after step", step, flush=True)
    Path("own").mkdir(exist_ok=True)
    ends = step + chance.randint(6, 12) if restart < 3 else 61
    while step < 60:
        step += 1
        numbers.append(numbers[-1] * 0.9 + step)
        time.sleep(0.08)
        while restart == 0 and step >= ends and not any(snapshots.glob("step-*")):
            time.sleep(0.05)
        if step % 5 == 0:
            save(step, dies=step >= ends)
        elif step >= ends and chance.random() < 0.5:
            kill()
    Path("weights").write_text(str(numbers[-1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("style", ["plain", "hugging face", "dcp"])
def test_a_program_that_is_killed_at_random_even_while_it_saves_ends_with_the_weights_of_an_undisturbed_one(
    style: str, seed: int, start: Launcher
) -> None:
    run = start(
        KILLED_AT_RANDOM,
        env={"STYLE": style, "SEED": str(seed)},
        checkpoints={**CHECKPOINTS, "files": "own/*"},
        restarts={"signal": 3},
    )
    outcome, log = run.outcome(), run.log()
    assert outcome.reason == "finished", "\n".join(log)
    assert len(outcome.starts) == 4
    assert (run.box / "code/weights").read_text() == undisturbed(60)
    began = [int(line.rpartition(" ")[2]) for line in log if "starts after step" in line]
    assert began == sorted(began)
    assert began[1] >= 5


def test_a_program_that_was_killed_with_its_supervisor_continues_on_the_same_disk(start: Launcher) -> None:
    program = TRAINS.replace("os.kill(os.getpid(), signal.SIGKILL)", "heart.beat(25); time.sleep(600)")
    command = ["python", "program.py", "{resume:--from}"]
    run = start(program, command=command, **SLOW)
    run.until_steps(25)
    before = (run.box / layout.FILES_BEFORE).read_text()
    run.start_again()
    outcome, log = run.outcome(), run.log()

    assert outcome.reason == "finished", "\n".join(log)
    assert log.count("rank0 starts after step 0") == log.count("rank0 starts after step 20") == 1
    assert (run.box / layout.CODE / "weights").read_text() == undisturbed(40)
    assert any("step_25.pt was moved to tmp/incomplete" in line for line in log)
    assert (run.box / layout.STARTS / "0" / "ranks" / "rank-0.process.json").exists()
    assert (run.box / layout.FILES_BEFORE).read_text() == before, "what it wrote before is its own"
