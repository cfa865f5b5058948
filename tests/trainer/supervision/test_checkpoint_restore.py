"""The newest intact checkpoint of a program is put back to its place, on this machine or the next."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.supervision.launches import Launched
from tests.trainer.supervision.own_files import Watching, Writer, dcp_like, hugging_face_like
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import DamagedError, Manifest, checksum_file, newest_first
from vastrun.trainer.supervision.checkpoint_restore import ProgramCheckpoints, move_aside

pytestmark = pytest.mark.torch

CHECKPOINTS = {"files": "checkpoints/*", "keep": 2, "every_s": 0.1}
TRAINS = """
    import pickle, zipfile
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
        numbers.append(numbers[-1] * 0.9 + step)
        if step % 10 == 0:
            with zipfile.ZipFile(f"checkpoints/step_{step}.pt", "w") as file:
                file.writestr("data.pkl", pickle.dumps((step, numbers)))
        if step == 25 and starts == 0:
            Path("checkpoints/step_25.pt").write_bytes(b"PK\\x03\\x04 half")
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
def watching(tmp_path: Path) -> Watching:
    return Watching(box=tmp_path / "box")


def test_a_checkpoint_is_kept_while_its_program_runs(watching: Watching) -> None:
    said: list[str] = []
    checkpoints = ProgramCheckpoints(box=watching.box, say=said.append, watcher=watching.watcher)
    with checkpoints.watching():
        hugging_face_like(watching.path("checkpoints/checkpoint-5"), "saved")
        assert eventually(lambda: watching.taken() == ["step-000005"]), said


def on_the_next_machine(watching: Watching) -> Watching:
    """Another box whose job came with what the first one kept."""
    box = watching.box.with_name("next")
    box.mkdir()
    (watching.box / layout.CHECKPOINTS).rename(box / layout.RESUME)
    return Watching(box=box, pattern=watching.pattern)


def test_a_program_that_saves_among_its_outputs_finds_its_checkpoint_there(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="$VASTRUN_OUTPUTS/checkpoint-*")
    (watching.box / layout.OUTPUTS).mkdir(parents=True)
    hugging_face_like(watching.box / layout.OUTPUTS / "checkpoint-10", "first")
    watching.poll(2)
    after = on_the_next_machine(watching)
    assert after.restore() == "run/outputs/checkpoint-10"


def test_a_fresh_start_has_nothing_to_continue_from(watching: Watching) -> None:
    assert watching.restore() == ""


def test_a_file_is_back_at_its_place_on_the_next_machine(watching: Watching) -> None:
    watching.path("checkpoints/step_500.pkl").write_bytes(b"weights")
    watching.poll(2)
    after = on_the_next_machine(watching)
    assert after.restore() == "code/checkpoints/step_500.pkl"
    assert after.path("checkpoints/step_500.pkl").read_bytes() == b"weights"
    after.watcher.begin()
    after.path("checkpoints/step_20.pkl").write_bytes(b"newer")
    after.poll(2)
    assert after.taken() == ["step-000501"]


@pytest.mark.parametrize("save", [hugging_face_like, dcp_like])
def test_a_folder_is_back_at_its_place_with_all_its_files(
    save: Callable[..., None], watching: Watching
) -> None:
    save(watching.path("checkpoints/checkpoint-10"), "first")
    watching.poll(2)
    names = sorted(path.name for path in watching.path("checkpoints/checkpoint-10").iterdir())
    after = on_the_next_machine(watching)
    assert after.restore() == "code/checkpoints/checkpoint-10"
    assert sorted(path.name for path in after.path("checkpoints/checkpoint-10").iterdir()) == names


def test_a_program_may_write_to_its_restored_folder_whatever_the_rights_of_the_kept_files(
    watching: Watching,
) -> None:
    hugging_face_like(watching.path("checkpoints/checkpoint-5"), "saved")
    watching.poll(2)
    after = on_the_next_machine(watching)
    for path in (after.box / layout.RESUME).rglob("*"):
        if path.is_file():
            path.chmod(0o444)

    assert after.restore() == "code/checkpoints/checkpoint-5"

    restored = [path for path in after.path("checkpoints/checkpoint-5").rglob("*") if path.is_file()]
    assert restored and all(path.stat().st_mode & 0o200 for path in restored)


def test_on_the_same_machine_a_checkpoint_that_is_still_there_is_left_as_it_is(watching: Watching) -> None:
    path = watching.path("checkpoints/step_1.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    inode = path.stat().st_ino
    assert watching.restore() == "code/checkpoints/step_1.pkl"
    assert path.stat().st_ino == inode


def test_a_file_that_was_overwritten_halfway_comes_back_whole_and_the_half_one_is_kept_aside(
    watching: Watching,
) -> None:
    path = watching.path("checkpoints/last.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    Writer(path).kill()
    watching.watcher.final_poll(ended_well=False)
    assert watching.restore() == "code/checkpoints/last.pkl"
    assert path.read_bytes() == b"weights"
    assert (watching.box / "tmp/incomplete/checkpoints/last.pkl").read_bytes() == b"half"


def test_an_incomplete_file_is_moved_away_so_that_the_program_does_not_load_it(watching: Watching) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"weights")
    watching.poll(2)
    Writer(watching.path("checkpoints/step_2.pkl")).kill()
    watching.watcher.final_poll(ended_well=False)
    move_aside(watching.watcher.incomplete, watching.code, watching.box, watching.said.append)
    assert watching.restore() == "code/checkpoints/step_1.pkl"
    assert [path.name for path in watching.path("checkpoints").iterdir()] == ["step_1.pkl"]
    assert watching.said[-2:] == [
        "checkpoints/step_2.pkl is not the complete checkpoint; it was moved to "
        "tmp/incomplete/checkpoints/step_2.pkl",
        "checkpoint step-000001 is restored: VASTRUN_RESUME=code/checkpoints/step_1.pkl",
    ]


def test_all_that_is_incomplete_is_moved_aside(watching: Watching) -> None:
    names = ["checkpoints/step_2.pkl", "checkpoints/step_3.pkl"]
    for name in names:
        watching.path(name).write_bytes(b"half")
    move_aside(names, watching.code, watching.box, watching.said.append)
    assert not list(watching.path("checkpoints").iterdir())
    assert all((watching.box / "tmp/incomplete" / name).is_file() for name in names)


def test_of_a_damaged_checkpoint_and_an_older_one_the_older_is_restored(watching: Watching) -> None:
    for step in (1, 2):
        watching.path(f"checkpoints/step_{step}.pkl").write_bytes(b"weights")
        watching.poll(2)
    after = on_the_next_machine(watching)
    (after.box / "resume/step-000002/files/checkpoints/step_2.pkl").write_bytes(b"garbage")
    assert after.restore() == "code/checkpoints/step_1.pkl"
    assert "step-000002 is damaged and is skipped" in after.said[0]


def test_when_no_checkpoint_is_intact_nothing_starts_afresh_in_silence(watching: Watching) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"weights")
    watching.poll(2)
    after = on_the_next_machine(watching)
    (after.box / "resume/step-000001/files/checkpoints/step_1.pkl").write_bytes(b"garbage")
    with pytest.raises(DamagedError, match="none of 1 checkpoint"):
        after.restore()


@pytest.mark.parametrize("place", ["train.py", "../outside.pkl", "/tmp/outside.pkl"])
def test_a_checkpoint_from_a_strangers_machine_writes_nowhere_but_where_checkpoints_go(
    place: str, watching: Watching
) -> None:
    watching.path("train.py").write_text("print('ours')")
    checkpoint = watching.box / layout.RESUME / "step-000001"
    (checkpoint / "files").mkdir(parents=True)
    (checkpoint / "files/train.py").write_text("print('theirs')")
    (checkpoint / "state.json").write_text(json.dumps({"program": {"path": place}}))
    listed = [("files/train.py", "files/train.py"), ("state.json", "state.json")]
    files = [
        {"path": name, "size": found.size, "sha256": found.sha256}
        for name, place in listed
        for found in [checksum_file(checkpoint / place)]
    ]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 1, "files": files}))
    assert watching.restore().startswith("resume/step-000001")
    assert watching.path("train.py").read_text() == "print('ours')"
    assert not (watching.box / "outside.pkl").exists()


def test_a_checkpoint_that_the_program_did_not_save_is_named_where_it_lies(watching: Watching) -> None:
    checkpoint = watching.box / layout.RESUME / "step-000007"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_bytes(b"weights")
    found = checksum_file(checkpoint / "state")
    manifest = Manifest(step=7, files=(found,))
    files = [{"path": found.path, "size": found.size, "sha256": found.sha256}]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": manifest.step, "files": files}))
    assert newest_first(watching.box / layout.RESUME) == [checkpoint]
    assert watching.restore() == "resume/step-000007"


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[list[Launched]]:
    runs: list[Launched] = []
    yield runs
    for run in runs:
        run.end()
        assert run.processes() == []


def start(runs: list[Launched], box: Path, program: str, **job: Any) -> Launched:
    runs.append(Launched(box, program, **{"ranks": 1, "checkpoints": CHECKPOINTS, **job}))
    return runs[-1]


def undisturbed() -> str:
    number = 0.0
    for step in range(1, 41):
        number = number * 0.9 + step
    return str(number)


def test_a_killed_program_continues_from_its_newest_complete_checkpoint_with_the_same_weights(
    launched: list[Launched], tmp_path: Path
) -> None:
    command = ["python", "program.py", "{resume:--from}"]
    run = start(launched, tmp_path / "box", TRAINS, command=command, restarts={"signal": 1})
    outcome, log = run.outcome(), run.log()

    assert outcome.reason == "finished", log
    assert outcome.starts[0].checkpoint == 20
    assert "rank0 starts after step 0" in log
    assert "rank0 starts after step 20" in log
    assert (run.box / "code/weights").read_text() == undisturbed()
    assert (run.box / "tmp/incomplete/checkpoints/step_25.pt").is_file()
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.step, outcome.checkpoint.intact) == (40, True)


def test_half_a_file_of_a_killed_rank_is_not_kept_while_the_other_ranks_live_on(
    launched: list[Launched], tmp_path: Path
) -> None:
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
    run = start(launched, tmp_path / "box", dies, ranks=2)
    assert run.outcome().reason == "signal"
    assert newest_first(run.box / layout.CHECKPOINTS) == []


def test_a_machine_that_comes_next_continues_from_the_folder_that_was_kept_while_the_first_one_ran(
    launched: list[Launched], tmp_path: Path
) -> None:
    run = start(launched, tmp_path / "first", WAITS)
    latest = run.box / layout.CHECKPOINTS / "latest.json"
    eventually(latest.exists)
    assert json.loads(latest.read_text()) == {"step": 5, "path": "step-000005"}
    run.end()

    box = tmp_path / "second"
    shutil.copytree(run.box / layout.CHECKPOINTS, box / layout.RESUME)
    second = start(launched, box, WAITS)
    assert second.outcome().reason == "finished", second.log()
    assert f"rank0 resumes {box.resolve()}/code/checkpoints/checkpoint-5" in second.log()
    assert sorted(path.name for path in (box / "code/checkpoints/checkpoint-5").iterdir()) == [
        *("optimizer.pt", "trainer_state.json", "training_args.bin")
    ]


def test_a_program_that_saves_when_it_is_stopped_has_that_checkpoint_kept(
    launched: list[Launched], tmp_path: Path
) -> None:
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
    run = start(launched, tmp_path / "box", saves, checkpoints={**CHECKPOINTS, "files": "*.pkl"})
    run.until_steps(1)
    run.send(signal.SIGTERM)
    run.outcome()
    (checkpoint,) = newest_first(run.box / layout.CHECKPOINTS)
    assert (checkpoint / "files/last.pkl").read_bytes() == b"weights"


def test_without_checkpoints_in_the_job_a_program_has_an_empty_variable_and_its_own_braces(
    launched: list[Launched], tmp_path: Path
) -> None:
    shows = 'print("got", repr(os.environ["VASTRUN_RESUME"]), sys.argv[1], flush=True)'
    run = start(
        launched, tmp_path / "box", shows, checkpoints=None, command=["python", "program.py", "{resume}"]
    )
    assert run.outcome().reason == "finished"
    assert "rank0 got '' {resume}" in run.log()


KILLED_AT_RANDOM = """
    import pickle, random, time, zipfile
    style, seed = os.environ["STYLE"], int(os.environ["SEED"])
    restart = int(os.environ["VASTRUN_RESTART"])
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
        time.sleep(0.02)
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
    style: str, seed: int, launched: list[Launched], tmp_path: Path
) -> None:
    env = {"STYLE": style, "SEED": str(seed)}
    own = {**CHECKPOINTS, "files": "own/*"}
    run = start(
        launched,
        tmp_path / "box",
        KILLED_AT_RANDOM,
        env=env,
        checkpoints=own,
        restarts={"signal": 3},
        beating=True,
    )
    outcome, log = run.outcome(), run.log()
    assert outcome.reason == "finished", log
    assert len(outcome.starts) == 4
    number = 0.0
    for step in range(1, 61):
        number = number * 0.9 + step
    assert (run.box / "code/weights").read_text() == str(number)
    began = [int(line.rpartition(" ")[2]) for line in log if "starts after step" in line]
    assert began == sorted(began)
    assert began[1] >= 5
