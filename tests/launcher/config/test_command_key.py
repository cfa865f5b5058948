"""The key `command`: a list of words, a simple line, or a script for bash."""

import json

import pytest

from tests.launcher.config.job_files import COMMAND, TRAIN, faults, load
from vastrun.launcher.config import dump_job, read_job


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("!secret a", "the tag !secret is not known here"),
        ('"a\\0b"', "contains a NUL character"),
        ("[a, !!binary b]", "[1]: the tag tag:yaml.org,2002:binary is not known here"),
    ],
)
def test_a_value_that_nothing_can_be_made_of_is_refused(command: str, fault: str) -> None:
    (told,) = faults(f"{COMMAND}command: {command}\n")
    assert told.replace("command: ", "command").endswith(f"command{fault}")


def test_proofs_go_with_a_command_and_must_be_given() -> None:
    assert faults(TRAIN + "success: {exit_code: 0}\n") == (
        "job.yaml:3: success: works with command only: the onboard trainer has its own proofs",
    )
    assert faults("name: job\ncommand: a\n") == (
        "job.yaml:2: command: needs success, what proves that the program worked: "
        "{steps: N} with beat(step) in its loop, {files: PATH} that it writes, or only {exit_code: 0}",
    )
    assert faults("name: job\ncommand: a\nsuccess:\n") == (
        "job.yaml:3: success: expected at least one of files, log, steps, exit_code",
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py --lr 1e-3", ("python", "train.py", "--lr", "1e-3")),
        ("python -m 'my train' --lr 1e-3", ("python", "-m", "my train", "--lr", "1e-3")),
        ("python -c 'print(1 > 0)'", ("python", "-c", "print(1 > 0)")),
        ('python train.py "a b"', ("python", "train.py", "a b")),
        (
            "[python, a.py, --steps, 100, --amp, true, 1e-3]",
            ("python", "a.py", "--steps", "100", "--amp", "true", "1e-3"),
        ),
    ],
)
def test_a_simple_command_and_a_list_of_words_need_no_shell(command: str, words: tuple[str, ...]) -> None:
    assert load(f"{COMMAND}command: {command}\n").command == words


@pytest.mark.parametrize(
    "command",
    [
        "echo one && echo two",
        "echo one\necho two",
        "python train.py | tee log.txt",
        "python train.py > log.txt",
        "python train.py $SEED",
        'python train.py "$SEED"',
        "python train.py data/*.h5",
        "python train.py ~/data",
        "SEED=1 python train.py",
        "echo one # don't split this",
        "(cd sub; python train.py)",
    ],
)
def test_a_script_is_given_to_bash_and_stays_one_when_it_is_written_down(command: str) -> None:
    spec = load(f"{COMMAND}command: {json.dumps(command)}\n")
    assert spec.command is not None
    assert spec.command[:-1] == ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    assert spec.command[-1].endswith(command)
    assert read_job(dump_job(spec)) == spec


def test_a_list_that_looks_like_a_script_is_refused() -> None:
    (fault,) = faults(COMMAND + "command: ['python a.py && echo done']\n")
    assert "a list is run without a shell" in fault
    assert "write a script as a string" in fault
