"""Program: where it starts, how it ends, and what of its logs becomes a curve; no framework is imported."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vastrun.integrations import resume_path
from vastrun.integrations.program import numbers_of


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with a module `wandb` that says what it is asked."""
    (folder / "wandb.py").write_text(
        "run = None\n"
        "def finish(exit_code=0):\n"
        "    print('finished', exit_code)\n"
        "    if exit_code == 7: raise OSError\n"
    )
    text = f"import sys; sys.path.insert(0, {str(folder)!r})\n{textwrap.dedent(program)}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_checkpoint_to_continue_from_is_the_one_that_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VASTRUN_RESUME", "/box/code/checkpoints/step_5")
    assert resume_path() == "/box/code/checkpoints/step_5"
    monkeypatch.setenv("VASTRUN_RESUME", "")
    assert resume_path() is None
    monkeypatch.delenv("VASTRUN_RESUME")
    assert resume_path() is None


def test_nothing_of_a_framework_is_imported_before_its_module_is(tmp_path: Path) -> None:
    names = "{'torch', 'numpy', 'transformers', 'lightning', 'accelerate', 'wandb', 'vastrun.launcher'}"
    done = run(f"import vastrun.integrations\nprint({names} & set(sys.modules))", tmp_path)
    assert done.stdout == "set()\n", done.stderr


def test_a_program_leaves_without_what_python_does_at_its_end(tmp_path: Path) -> None:
    program = """
        import atexit
        from vastrun.integrations import leave
        atexit.register(print, "too late")
        print("done", end="")
        leave(143)
    """
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (143, "done", "")


@pytest.mark.parametrize(
    ("opened", "code", "said"),
    [("object()", 0, "finished 0\n"), ("object()", 7, "finished 7\n"), ("None", 3, "")],
)
def test_an_open_run_of_wandb_ends_with_the_exit_code_of_the_program(
    opened: str, code: int, said: str, tmp_path: Path
) -> None:
    program = f"import wandb\nfrom vastrun.integrations import leave\nwandb.run = {opened}\nleave({code})"
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (code, said), done.stderr


class OneNumber:
    """A tensor of one number."""

    def numel(self) -> int:
        return 1

    def item(self) -> float:
        return 0.5


class ManyNumbers(OneNumber):
    def numel(self) -> int:
        return 2


def test_of_what_is_logged_only_numbers_are_taken() -> None:
    one = OneNumber()
    logged = {"lr": 0.1, "epoch": 2, "ok": True, "text": "x", "one": one, "many": ManyNumbers(), "none": None}
    assert numbers_of(logged) == {"lr": 0.1, "epoch": 2, "one": one}


def test_the_step_and_what_was_reported_already_are_left_out() -> None:
    assert numbers_of({"step": 3, "at": 4, "loss": 1.0, "accuracy": 0.5}, ["loss"]) == {"accuracy": 0.5}


def test_a_loss_by_a_usual_name_has_vastruns_name_too() -> None:
    found = numbers_of({"eval_loss": 0.5, "train_loss": 0.25})
    assert found == {"eval_loss": 0.5, "validation_loss": 0.5, "train_loss": 0.25, "loss": 0.25}
    assert numbers_of({"train_loss": 0.25, "loss": 0.125}) == {"train_loss": 0.25, "loss": 0.125}
