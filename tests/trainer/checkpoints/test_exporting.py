"""An export: the weights of a checkpoint in one file; of one that is a trap, nothing but a line."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor

from tests.trainer.checkpoints.forged import Program, with_file, with_metadata
from tests.trainer.checkpoints.models import Training
from tests.trainer.conftest import together
from vastrun.trainer.checkpoints.export import main
from vastrun.trainer.distributed.group import Ranks

pytestmark = pytest.mark.torch


def train(ranks: Ranks, folder: Path) -> dict[str, Tensor]:
    """Two checkpoints, written by two ranks; what the second one holds."""
    training = Training(ranks, folder, "fsdp2")
    training.train(2)
    training.save()
    training.train(3)
    training.save()
    return {name: whole(tensor) for name, tensor in training.tensors().items()}


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return folder, together(train, 2, folder)[0]


@pytest.fixture
def checkpoints(trained: tuple[Path, dict[str, Tensor]], tmp_path: Path) -> Path:
    """A copy, to be spoiled."""
    return Path(shutil.copytree(trained[0], tmp_path / "checkpoints"))


def export(checkpoints: Path, file: Path, *options: str) -> int:
    return main([str(checkpoints), str(file), *options])


def load_torch(file: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = torch.load(file, weights_only=True)
    return tensors


@pytest.mark.parametrize(("name", "load"), [("weights.pt", load_torch), ("weights.safetensors", load_file)])
def test_the_averaged_weights_have_the_names_of_the_bare_model(
    trained: tuple[Path, dict[str, Tensor]],
    tmp_path: Path,
    name: str,
    load: Callable[[Path], dict[str, Tensor]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, saved = trained
    assert export(folder, tmp_path / name) == 0

    tensors = load(tmp_path / name)
    assert tensors.keys() == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}
    assert all(torch.equal(tensor, saved[f"ema.{name}"]) for name, tensor in tensors.items())
    told = json.loads(capsys.readouterr().out)
    assert (told["checkpoint"], told["step"], told["tensors"], told["averaged"]) == (
        "step-000003",
        3,
        6,
        True,
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_all_is_what_was_saved(trained: tuple[Path, dict[str, Tensor]], tmp_path: Path) -> None:
    folder, saved = trained
    assert export(folder, tmp_path / "all.pt", "--all") == 0
    tensors = load_torch(tmp_path / "all.pt")
    assert tensors.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in tensors.items())


@pytest.mark.parametrize(("which", "step"), [("2", 2), ("best", 2), ("latest", 3)])
def test_a_given_checkpoint_is_exported(checkpoints: Path, tmp_path: Path, which: str, step: int) -> None:
    assert export(checkpoints, tmp_path / "weights.safetensors", "--checkpoint", which) == 0
    with safe_open(tmp_path / "weights.safetensors", "pt") as file:
        assert file.metadata()["step"] == str(step)


def test_of_checkpoints_the_newest_intact_one_is_exported(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoints / "step-000003" / "__0_0.distcp").write_bytes(b"")
    assert export(checkpoints, tmp_path / "weights.pt") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2
    assert export(checkpoints, tmp_path / "weights.pt", "--checkpoint", "3") == 1
    assert "does not match its manifest" in capsys.readouterr().err


def immense() -> bytes:
    """Metadata of a tensor that no computer holds."""
    size = torch.Size([1 << 40])
    tensor = TensorStorageMetadata(
        properties=TensorProperties(dtype=torch.float32),
        size=size,
        chunks=[ChunkStorageMetadata(offsets=torch.Size([0]), sizes=size)],
    )
    return pickle.dumps(Metadata(state_dict_metadata={"model.0.weight": tensor}, storage_data={}))


def lists(path: str) -> Callable[[Path], None]:
    """The manifest lists that file, too."""

    def spoil(checkpoint: Path) -> None:
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        manifest["files"][0]["path"] = path
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))

    return spoil


CANARY = "touch canary"
TRAPS = {
    "metadata are a program": lambda at: with_metadata(at, pickle.dumps(Program(os.system, CANARY))),
    "tensors are a program": lambda at: with_file(
        at, "__0_0.distcp", pickle.dumps(Program(os.system, CANARY)) * 99
    ),
    "tensors are cut": lambda at: with_file(at, "__0_0.distcp", (at / "__0_0.distcp").read_bytes()[:99]),
    "a tensor is immense": lambda at: with_metadata(at, immense()),
    "a file without an end is listed": lists("/dev/zero"),
    "a file above is listed": lists("../latest.json"),
    "the state is no record": lambda at: with_file(at, "state.json", b'{"step": "three"}'),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_a_line_and_no_more(
    checkpoints: Path,
    tmp_path: Path,
    trap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(checkpoints / "step-000002")
    TRAPS[trap](checkpoints / "step-000003")

    assert export(checkpoints, tmp_path / "weights.pt") == 1

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("export: ")
    assert told.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]


def test_the_best_is_a_checkpoint_of_the_folder(checkpoints: Path, tmp_path: Path) -> None:
    best = json.loads((checkpoints / "best.json").read_text())
    shutil.copytree(checkpoints / "step-000002", tmp_path / "elsewhere")
    (checkpoints / "best.json").write_text(json.dumps(best | {"path": "../elsewhere"}))
    assert export(checkpoints, tmp_path / "weights.pt", "--checkpoint", "best") == 1
