"""`vastrun export`: refused with a reason, or one file more."""

import sys
from pathlib import Path

import pytest

from tests.launcher.terminal import JOB, Terminal
from tests.trainer.checkpoints.models import Training
from tests.trainer.conftest import together
from vastrun.trainer.distributed.group import Ranks


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path)
    terminal.launch()
    return terminal


def save(ranks: Ranks, folder: Path) -> None:
    training = Training(ranks, folder)
    training.train(12)
    training.save()


@pytest.mark.torch
@pytest.mark.slow
def test_the_newest_checkpoint_that_came_home_becomes_one_file(terminal: Terminal) -> None:
    together(save, 1, terminal.folder / "out" / "checkpoints")
    file = terminal.folder / "weights.pt"
    end = terminal.type("export", "last", "--to", str(file))
    told = terminal.document("export", "last", "--to", str(file), "--force", "--all")
    assert end.exit_code == 0, end.output
    assert end.stdout.startswith(f"{file}: averaged weights of step-000012, 6 tensors, 0.0 MB")
    assert (told["file"], told["step"], told["averaged"]) == (str(file), 12, False)
    assert told["bytes"] == file.stat().st_size


@pytest.mark.torch
@pytest.mark.slow
def test_modules_beside_the_user_are_not_run(terminal: Terminal) -> None:
    """The user stands in the outputs, which the box filled."""
    out = terminal.folder / "out"
    together(save, 1, out / "checkpoints")
    for module in ("torch.py", "json.py", "trainer.py"):
        (out / module).write_text("open('canary', 'w')")
    terminal.stands_in = out

    assert terminal.type("export", "last", "--to", "weights.safetensors").exit_code == 0

    assert (out / "weights.safetensors").is_file()
    assert not (out / "canary").exists()


@pytest.mark.torch
@pytest.mark.slow
def test_what_the_fake_box_calls_a_checkpoint_is_refused_in_a_line(terminal: Terminal) -> None:
    end = terminal.type("export", "last", "--to", str(terminal.folder / "weights.pt"))
    assert end.exit_code == 1
    assert "cannot export: " in end.stderr
    assert "Traceback" not in end.stderr
    assert not (terminal.folder / "weights.pt").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--to", "weights.bin"), "ends in .pt or .safetensors"),
        (("--to", "nowhere/weights.pt"), "there is no folder"),
        (("--to", "job.pt"), "exists"),
        (("--to", "weights.pt", "--checkpoint", "newest"), "expected latest, best, or a step"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(terminal.folder)
    (terminal.folder / "job.pt").touch()
    end = terminal.type("export", "last", *options)
    assert end.exit_code == 2
    assert told in end.stderr


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.launch("--detach")
    end = terminal.type("export", "last", "--to", str(tmp_path / "weights.pt"))
    assert end.exit_code == 2
    assert "left no checkpoint" in end.stderr
    assert "vastrun attach" in end.stderr


def test_a_checkpoint_of_a_users_own_program_is_named_with_the_command_that_copies_it(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.job.write_text(
        JOB.replace(
            "train: {steps: 10, batch: 8}",
            "ranks: 2\nsuccess: {exit_code: 0}\ncode: {path: .}\ncommand: python train.py",
        )
    )
    terminal.launch("--detach")
    newest = tmp_path / "out" / "checkpoints" / "step-000007"
    saved = newest / "files" / "code" / "model.pt"
    saved.parent.mkdir(parents=True)
    saved.touch()
    (newest.parent / "latest.json").write_text('{"step": 7, "path": "step-000007"}')
    for resume, path in (("code/model.pt", saved), ("../../../../job.yaml", newest / "files")):
        (newest / "state.json").write_text(f'{{"resume": "{resume}"}}')
        end = terminal.type("export", "last", "--to", "here")
        assert end.exit_code == 2
        assert f"cp -r {path} here" in end.stderr


def test_a_python_without_torch_says_what_to_install(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S \"$@\"\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    end = terminal.type("export", "last", "--to", str(tmp_path / "weights.pt"))
    assert end.exit_code == 1
    assert " -m pip install " in end.stderr
    assert "'torch<2.16,>=2.11'" in end.stderr and "'safetensors>=0.4'" in end.stderr
