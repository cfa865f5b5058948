"""Resuming: on another number of ranks, with another strategy, from the newest checkpoint that is intact."""

import io
import json
import os
import pickle
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import pytest
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorProperties

from tests.trainer.checkpoints.forged import Program, with_metadata
from tests.trainer.checkpoints.models import Training
from tests.trainer.checkpoints.test_folder import commit, folder_at, spoil
from tests.trainer.conftest import together
from vastrun.contract.checkpoint_folder import DamagedError, verify
from vastrun.trainer.checkpoints.disk import find_disk
from vastrun.trainer.checkpoints.reader import CheckpointReader, newest_intact
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import ConfigError, SaveError

pytestmark = pytest.mark.torch

ROAD = [("ddp", 2, 3), ("fsdp2", 2, 5), ("fsdp2", 4, 6), ("single", 1, 7), ("ddp", 3, 8), ("fsdp2", 1, 9)]
"""Strategy, ranks, and the step that they train to; each resumes where the one before left."""


def train(ranks: Ranks, folder: Path, strategy: str, until: int) -> list[float]:
    training = Training(ranks, folder, strategy)
    assert training.resume() == ()
    losses = training.train(until)
    training.save()
    return losses


@pytest.mark.slow
def test_every_strategy_goes_on_where_another_one_left(tmp_path: Path) -> None:
    uninterrupted = together(train, 1, tmp_path / "whole", "single", 9)[0]
    losses: list[float] = []
    for strategy, ranks, until in ROAD:
        losses += together(train, ranks, tmp_path / "road", strategy, until)[0]
    assert losses == pytest.approx(uninterrupted, abs=1e-6)
    road, whole = tmp_path / "road" / "step-000009", tmp_path / "whole" / "step-000009"
    assert sorted(path.name for path in road.iterdir()) == [
        ".metadata",
        "__0_0.distcp",
        "manifest.json",
        "state.json",
    ]
    assert json.loads((road / "state.json").read_text())["samples"] == 9 * 12
    assert (road / "__0_0.distcp").stat().st_size == (whole / "__0_0.distcp").stat().st_size


def interrupted(ranks: Ranks, folder: Path, strategy: str) -> None:
    """Six steps in one go, and six with a new beginning after the third."""
    whole = Training(ranks, folder / "whole", strategy)
    whole.train(6)
    whole.save()
    for until in (3, 6):
        training = Training(ranks, folder / "resumed", strategy)
        training.resume()
        training.train(until)
        training.save()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_resumed_run_ends_at_the_same_bits(tmp_path: Path, strategy: str) -> None:
    together(interrupted, 2, tmp_path, strategy)
    whole, resumed = (verify(tmp_path / name / "step-000006").files for name in ("whole", "resumed"))
    assert whole == resumed
    assert [file.path for file in whole] == ["__0_0.distcp", "__1_0.distcp", ".metadata", "state.json"]


def find(ranks: Ranks, folders: list[Path]) -> list[tuple[int, tuple[str, ...]]]:
    disk = find_disk(folders[0], ranks)
    found = [newest_intact((folder,), disk) for folder in folders]
    return [(one.state.step, one.faults) for one in found if one is not None]


def test_all_ranks_use_the_older_checkpoint_when_the_newest_is_damaged(tmp_path: Path) -> None:
    together(interrupted, 2, tmp_path, "ddp")
    damages = ["cut", "flipped", "missing", "no manifest", "torn manifest"]
    for damage in damages:
        shutil.copytree(tmp_path / "resumed", tmp_path / damage)
        spoil(tmp_path / damage / "step-000006", damage)
    answers = together(find, 3, [tmp_path / damage for damage in damages])
    assert answers[0] == answers[1] == answers[2]
    for step, faults in answers[0]:
        assert step == 3
        assert len(faults) == 1
        assert "step-000006" in faults[0]


def test_what_another_program_saved_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    commit(folder_at(tmp_path), 7)
    text, _ = together(refusal, 1, tmp_path, 50)[0]
    assert text.startswith(
        "no checkpoint is intact: step-000007 is complete, but not a checkpoint of this trainer"
    )


def test_a_checkpoint_that_holds_a_program_is_refused(tmp_path: Path) -> None:
    together(train, 1, tmp_path, "single", 1)
    with_metadata(tmp_path / "step-000001", pickle.dumps(Program(os.system, "true")))
    faults = together(refusal, 2, tmp_path, 50)
    assert faults[0][0] == "no checkpoint is intact: its .metadata is malformed: it refers to posix.system"


class NamingPickler(pickle.Pickler):
    """Python 3.11.0 to 3.11.3, Debian's among them, write the members of an enumeration like this."""

    def reducer_override(self, value: object) -> object:
        return (getattr, (type(value), value.name)) if isinstance(value, Enum) else NotImplemented


def test_a_checkpoint_is_read_whichever_python_3_11_wrote_it(tmp_path: Path) -> None:
    together(train, 1, tmp_path, "single", 1)
    checkpoint, written = tmp_path / "step-000001", io.BytesIO()
    NamingPickler(written).dump(CheckpointReader(checkpoint).metadata)
    with_metadata(checkpoint, written.getvalue())
    assert len(together(train, 1, tmp_path, "single", 2)[0]) == 1

    with_metadata(
        checkpoint, pickle.dumps(Program(getattr, type(CheckpointReader(checkpoint).metadata), "mro"))
    )
    with pytest.raises(DamagedError, match="refers to an attribute of Metadata"):
        CheckpointReader(checkpoint)


SETS_AN_ATTRIBUTE = (
    b"\x80\x02ctorch.distributed.checkpoint.metadata\n%s\n" + b"(N}X\x05\x00\x00\x00ownedK\x01stb."
)
"""A pickle whose BUILD sets `owned` on the class itself."""


@pytest.mark.parametrize("kind", [TensorProperties, Metadata])
def test_a_checkpoint_that_is_refused_has_changed_nothing_of_torch(tmp_path: Path, kind: type) -> None:
    (tmp_path / ".metadata").write_bytes(SETS_AN_ATTRIBUTE % kind.__name__.encode())
    with pytest.raises(DamagedError, match="is malformed"):
        CheckpointReader(tmp_path)
    assert not hasattr(kind, "owned")


def test_a_checkpoint_whose_metadata_ask_for_all_memory_is_refused(tmp_path: Path) -> None:
    """One instruction that remembers a value as its four thousand millionth."""
    (tmp_path / ".metadata").write_bytes(b"\x80\x02K\x01r\xff\xff\xff\xff.")
    with memory_at_most(2 << 30), pytest.raises(DamagedError, match="contain something other than Metadata"):
        CheckpointReader(tmp_path)


@contextmanager
def memory_at_most(more: int) -> Iterator[None]:
    """This process may have so many bytes more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "..", ""])
def test_a_checkpoint_whose_tensors_lie_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    place = _StorageInfo(relative_path=name, offset=0, length=4)
    found = Metadata(state_dict_metadata={}, storage_data={MetadataIndex("model.x"): place})
    (tmp_path / ".metadata").write_bytes(pickle.dumps(found))
    with pytest.raises(DamagedError, match="which is not one of its files"):
        CheckpointReader(tmp_path)


def refusal(ranks: Ranks, folder: Path, width: int) -> tuple[str, bool]:
    """What all ranks say, and whether this one leaves it to another to say it."""
    with pytest.raises(ConfigError) as caught:
        Training(ranks, folder, "ddp", width=width).resume()
    return str(caught.value), caught.value.reported_elsewhere


def test_a_checkpoint_of_another_model_is_refused_in_one_line_by_one_rank(tmp_path: Path) -> None:
    together(train, 1, tmp_path, "single", 1)
    (text, reported_elsewhere), other = together(refusal, 2, tmp_path, 40)
    assert text.startswith(
        "step-000001 belongs to another model or optimiser: model.0.weight is (50, 30) there"
    )
    assert not reported_elsewhere
    assert other == (text, True)


def on_two_machines(ranks: Ranks, folder: Path, strategy: str) -> tuple[list[float], list[Path]]:
    """Each rank has a folder of its own. Three steps, a new beginning, three more."""
    own = folder / f"rank-{ranks.rank.rank}"
    for until in (3, 6):
        training = Training(ranks, own, strategy)
        training.resume()
        losses = training.train(until)
        training.save()
    return losses, sorted(own.rglob("*"))


@pytest.mark.parametrize(
    ("strategy", "shards"), [("ddp", ["__0_0.distcp"]), ("fsdp2", ["__0_0.distcp", "__1_0.distcp"])]
)
def test_ranks_that_do_not_see_the_disk_of_rank_0_resume_from_it_and_leave_nothing_on_theirs(
    strategy: str, shards: list[str], tmp_path: Path
) -> None:
    (losses, _), (same, written) = together(on_two_machines, 2, tmp_path, strategy)
    assert losses == same
    assert len(losses) == 3
    assert written == []
    manifest = verify(tmp_path / "rank-0" / "step-000006")
    assert [file.path for file in manifest.files] == [*shards, ".metadata", "state.json"]
    whole = together(in_one_go, 2, tmp_path / "whole", strategy)
    assert losses == whole[0]


def in_one_go(ranks: Ranks, folder: Path, strategy: str) -> list[float]:
    """The last three of six steps on one machine."""
    training = Training(ranks, folder, strategy)
    training.train(3)
    return training.train(6)


def lose_a_shard(ranks: Ranks, folder: Path) -> tuple[str, bool]:
    """The disk of rank 0 is full when the shard of another machine comes."""
    own = folder / f"rank-{ranks.rank.rank}"
    training = Training(ranks, own, "fsdp2")
    training.train(1)
    if ranks.rank.is_first:  # a folder stands where the file would be written
        (own / ".step-000001.part" / "__1_0.distcp").mkdir(parents=True)
    try:
        training.save()
    except SaveError as error:
        return str(error), (own / "step-000001").exists()
    return "", True


def test_a_shard_that_rank_0_cannot_get_fails_all_and_makes_no_checkpoint(tmp_path: Path) -> None:
    (first, is_there), (second, _) = together(lose_a_shard, 2, tmp_path)
    assert first == second
    assert first.startswith("the checkpoint of step 1 is not saved: ")
    assert not is_there
    assert list((tmp_path / "rank-1").iterdir()) == []


def test_a_run_continues_itself_before_it_continues_another(tmp_path: Path) -> None:
    together(two_runs, 1, tmp_path)


def two_runs(ranks: Ranks, folder: Path) -> None:
    for path, step in ((folder / "resume", 7), (folder / "mine", 3)):
        training = Training(ranks, path)
        training.train(step)
        training.save()
        again = Training(ranks, folder / "mine")
        again.resume()
        assert again.step == step
