"""What a job ships from this computer is checked first: exit code 2, and no run is left."""

from pathlib import Path

import pytest

from tests.launcher.terminal import Terminal
from vastrun.launcher.app import App
from vastrun.launcher.bundle import Bundler

COMMANDS = [("plan",), ("plan", "--explain"), ("launch", "--dry-run"), ("launch", "-y")]
HEAD = "name: own\nresources: {gpus: 0}\nlimits: {usd: 5}\nsuccess: {exit_code: 0}\n"


class Desk(Terminal):
    """A terminal that packs as the real one does."""

    def app(self) -> App:
        return super().app().with_changes(packer=lambda origin: Bundler(self.environ, origin=origin))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)\n")
    return desk


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("job", "said", "hint"),
    [
        ("command: python train.py\ncode: {path: nowhere}\n", "job.yaml: code.path: no folder", ""),
        (
            "command: python train.py\ncode: {path: code}\nsecrets: [HF_TOKEN]\n",
            "secrets: HF_TOKEN is not set in the environment",
            "export HF_TOKEN=",
        ),
        (
            "command: python train.py\ncode: {path: code}\nsecrets: [{name: HF_TOKEN, file: no-such-key}]\n",
            "secrets: HF_TOKEN cannot be read from",
            "",
        ),
        (
            "command: 'if true; then echo 1'\ncode: {path: code}\n",
            "command: bash cannot read the script: line 2: syntax error",
            "",
        ),
        ("command: python code/train.py\n", "command: code/train.py is next to", "code: {path: .}"),
        (
            "command: cd code && python code/train.py\n",
            "job.yaml: command: code/train.py is next to",
            "code: {path: .}",
        ),
    ],
    ids=["no folder", "no secret", "no file of a secret", "syntax", "no code", "no code for a script"],
)
def test_what_cannot_be_shipped_is_refused_before_anything_is_asked_for(
    desk: Desk, words: tuple[str, ...], job: str, said: str, hint: str
) -> None:
    desk.job.write_text(HEAD + job)
    end = desk.type(words[0], str(desk.job), *words[1:])
    assert end.exit_code == 2, end.output
    assert said in end.stderr
    assert hint in end.stderr
    assert desk.ledger.runs() == []
    assert desk.market.rentals == 0


@pytest.mark.parametrize("name", ["vastrun.py", "vastrun/own.py"])
def test_code_for_the_onboard_trainer_may_not_have_a_module_named_vastrun(desk: Desk, name: str) -> None:
    (desk.folder / "code" / name).parent.mkdir(exist_ok=True)
    (desk.folder / "code" / name).write_text("MINE = True\n")
    desk.job.write_text("name: own\nresources: {gpus: 0}\ntrain: {steps: 5}\ncode: {path: code}\n")
    end = desk.type("plan", str(desk.job))
    assert end.exit_code == 2, end.output
    assert "code.path: it has a module named vastrun, which `train:` imports itself" in end.stderr
    assert "rename" in end.stderr


@pytest.mark.parametrize("name", ["trainer.py", "trainer/__init__.py", "launcher.py"])
def test_code_for_the_onboard_trainer_may_have_modules_named_as_ours_are(desk: Desk, name: str) -> None:
    (desk.folder / "code" / name).parent.mkdir(exist_ok=True)
    (desk.folder / "code" / name).write_text("raise SystemExit('not ours')\n")
    desk.job.write_text(
        "name: own\nresources: {gpus: 0}\nlimits: {usd: 5}\ntrain: {steps: 5}\ncode: {path: code}\n"
    )
    end = desk.type("plan", str(desk.job))
    assert end.exit_code == 0, end.output


def test_a_link_that_leads_out_of_the_code_is_refused(desk: Desk) -> None:
    (desk.folder / "code/data").symlink_to("/etc")
    desk.job.write_text(HEAD + "command: python train.py\ncode: {path: code}\n")
    end = desk.type("plan", str(desk.job))
    assert end.exit_code == 2
    assert "points out of its folder" in end.stderr


def test_a_command_without_code_says_that_nothing_is_shipped(desk: Desk) -> None:
    desk.job.write_text(HEAD + "command: nvidia-smi\n")
    end = desk.type("plan", str(desk.job))
    assert end.exit_code == 0, end.output
    assert "has no code: nothing is uploaded besides the command" in end.stderr
    assert "code      none is uploaded" in end.stdout


def test_a_wandb_key_that_is_not_set_is_told_with_the_way_without_one(desk: Desk) -> None:
    desk.job.write_text(HEAD + "command: python train.py\ncode: {path: code}\nsecrets: WANDB_API_KEY\n")
    end = desk.type("launch", str(desk.job), "-y")
    assert end.exit_code == 2
    assert "WANDB_MODE: offline" in end.stderr
