"""The folder of checkpoints: each whole or absent; the newest and the best kept. Plain files will do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vastrun.contract import checkpoint_folder
from vastrun.trainer.checkpoints.scored_folder import CheckpointScore, ScoredFolder, best_of


def folder_at(path: Path, *, keep: int = 2, keep_best: bool = False) -> ScoredFolder:
    return ScoredFolder(path=path, keep=keep, keep_best=keep_best)


def commit(folder: ScoredFolder, step: int, loss: float | None = None) -> Path:
    part = folder.part(step)
    part.mkdir(parents=True)
    for name in ("__0_0.distcp", "__1_0.distcp"):
        (part / name).write_text(f"{name} of step {step}")
    score = None if loss is None else CheckpointScore(by="loss", value=loss)
    folder.commit(step, [checkpoint_folder.checksum_file(path) for path in sorted(part.iterdir())], score)
    return checkpoint_folder.newest_first(folder.path)[0]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_has_a_manifest_of_every_file_and_latest_names_it(tmp_path: Path) -> None:
    checkpoint = commit(folder_at(tmp_path), 500)
    assert names(tmp_path) == ["latest.json", "step-000500"]
    assert json.loads((tmp_path / "latest.json").read_text()) == {"step": 500, "path": "step-000500"}
    manifest = checkpoint_folder.verify(checkpoint)
    assert manifest.step == 500
    assert [file.path for file in manifest.files] == ["__0_0.distcp", "__1_0.distcp"]
    assert manifest.files[0].size == (checkpoint / "__0_0.distcp").stat().st_size


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    for step in (9, 10, 999_999, 1_000_000):
        commit(folder, step)
    assert names(tmp_path) == ["latest.json", "step-1000000", "step-999999"]


def test_the_best_stays_until_there_is_a_better_one(tmp_path: Path) -> None:
    folder = folder_at(tmp_path, keep_best=True)
    for step, loss in ((1, 0.5), (2, 0.2), (3, 0.4), (4, None), (5, 0.3)):
        commit(folder, step, loss)
    assert names(tmp_path) == ["best.json", "latest.json", "step-000002", "step-000004", "step-000005"]
    assert json.loads((tmp_path / "best.json").read_text()) == {
        "step": 2,
        "path": "step-000002",
        "by": "loss",
        "value": 0.2,
    }
    commit(folder, 6, 0.1)
    assert names(tmp_path) == ["best.json", "latest.json", "step-000005", "step-000006"]


def test_the_last_checkpoint_of_each_stage_stays(tmp_path: Path) -> None:
    folder = replace(folder_at(tmp_path), keep_steps=frozenset({2, 4, 9}))
    for step in range(1, 8):
        commit(folder, step)
    assert names(tmp_path) == ["latest.json", *(f"step-00000{step}" for step in (2, 4, 6, 7))]


def test_the_best_of_an_earlier_stage_is_no_rival(tmp_path: Path) -> None:
    folder = folder_at(tmp_path, keep_best=True)
    for step, loss in ((1, 0.1), (2, 0.2)):
        commit(folder, step, loss)
    next_stage = replace(folder, first_step=2)
    for step, loss in ((3, 0.5), (4, 0.6)):
        commit(next_stage, step, loss)
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 3


def test_a_run_that_began_again_before_damaged_checkpoints_replaces_them(tmp_path: Path) -> None:
    folder = folder_at(tmp_path, keep_best=True)
    for step, loss in ((10, 0.2), (20, 0.5), (30, 0.1)):
        (commit(folder, step, loss) / "__0_0.distcp").write_text("torn")
    assert checkpoint_folder.verify(commit(folder, 20, 0.3)).step == 20
    assert names(tmp_path) == ["best.json", "latest.json", "step-000020"]
    best = best_of(folder.path)
    assert best is not None
    assert (best.step, best.value) == (20, 0.3)


def test_a_damaged_checkpoint_is_none_of_those_kept(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    for step in (1, 2):
        commit(folder, step)
    spoil(tmp_path / "step-000002", "cut")
    commit(folder, 3)
    assert names(tmp_path) == ["latest.json", "step-000001", "step-000003"]


@pytest.mark.parametrize(
    "damage", ["cut", "flipped", "missing", "no manifest", "torn manifest", "no files", "another step"]
)
def test_damage_is_noticed_and_told_in_a_line(tmp_path: Path, damage: str) -> None:
    checkpoint = commit(folder_at(tmp_path), 7)
    spoil(checkpoint, damage)
    with pytest.raises(checkpoint_folder.DamagedError, match="step-000007") as caught:
        checkpoint_folder.verify(checkpoint)
    assert "\n" not in str(caught.value)


def spoil(checkpoint: Path, damage: str) -> None:
    """Does to the file of rank 1, or to the manifest, what disks do."""
    file, manifest = checkpoint / "__1_0.distcp", checkpoint / "manifest.json"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    {
        "cut": lambda: file.write_bytes(content[:-1]),
        "flipped": lambda: file.write_bytes(content),
        "missing": file.unlink,
        "no manifest": manifest.unlink,
        "torn manifest": lambda: manifest.write_text(manifest.read_text()[:20]),
        "no files": lambda: manifest.write_text('{"step": 7, "files": []}'),
        "another step": lambda: manifest.write_text(manifest.read_text().replace('"step": 7', '"step": 8')),
    }[damage]()


def test_a_file_that_is_not_on_this_disk_makes_no_checkpoint(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    part = folder.part(5)
    part.mkdir(parents=True)
    (part / "a").write_text("a")
    written = checkpoint_folder.checksum_file(part / "a")
    (part / "a").unlink()
    with pytest.raises(OSError, match="a"):
        folder.commit(5, [written])
    assert checkpoint_folder.newest_first(tmp_path) == []


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_swept(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    folder.part(2).mkdir(parents=True)
    (tmp_path / ".step-000001.old.part").mkdir()
    (tmp_path / ".latest.json.17.part").touch()
    assert checkpoint_folder.newest_first(tmp_path) == []
    folder.remove_parts()
    assert names(tmp_path) == []
