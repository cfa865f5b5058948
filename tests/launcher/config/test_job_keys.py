"""The keys `command` and `train` of a job file."""

import json

import pytest

from tests.launcher.config.job_files import COMMAND, TRAIN, faults, load
from vastrun.launcher.config import dump_job, program_of, read_job


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


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            "train.optim.betas=[0.9, 1.0]",
            "train.optim.betas[1]: expected a number of at least 0 and below 1, got 1.0",
        ),
        ("train.seed=1180591620717411303424", "train.seed: expected a whole number of at least 0 and below "),
    ],
)
def test_what_torch_would_refuse_is_refused_before_money_is_spent(wrong: str, told: str) -> None:
    [fault] = faults(TRAIN + "  steps: 1\n", wrong)
    assert fault.startswith(f"--set {told}")


OWN = "code: {path: .}\ntrain: {model: {name: 'mymodel:Net'"


def test_a_model_of_the_users_code_has_options_of_any_kind() -> None:
    options = "{width: 4, modes: [3, 4], act: {name: gelu, rate: 0.5}, bias: true, cut: null}"
    spec = load(f"name: job\n{OWN}, options: {options}}}}}\n", "train.model.options.modes=[5]")
    assert spec.train is not None and spec.train.model.is_own
    act = {"name": "gelu", "rate": 0.5}
    found = {"width": 4, "modes": [5], "act": act, "bias": True, "cut": None}
    assert spec.train.model.options == found
    assert read_job(dump_job(spec)) == spec


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("train: {model: {name: 'mymodel:Net'}}", "model.name: mymodel:Net must be in the uploaded code"),
        (
            "train: {model: {name: latnet}}",
            "module:attribute of your own code, got 'latnet'; did you mean latent?",
        ),
        ("train: {model: {name: 'my model:Net'}}\ncode: {}", "got 'my model:Net'"),
        ("train: {model: {name: ':Net'}}\ncode: {}", "got ':Net'"),
        (
            "train: {model: {options: {a: 1}}}",
            "model.options: has no effect with spectral; expected it with a model",
        ),
        (
            OWN + ", dim: 32}}",
            "model.dim: has no effect with mymodel:Net; give its arguments under model.opt",
        ),
        (OWN + ", options: {grid: 32}}}", "model.options.grid: the data decide grid, channels, conditions"),
        (
            OWN + ", options: {a-b: 32}}}",
            "model.options: expected the name of an argument in Python, got 'a-b'",
        ),
        (
            OWN + ", options: {lambda: 32}}}",
            "model.options: expected the name of an argument in Python, got 'lambda'",
        ),
        (OWN + "}, data: [{task: burgers}, {}]}", "model.name: mymodel:Net trains one task, got 2"),
        (OWN + "}, data: {patch: 8}}", "data.patch: has no effect with mymodel:Net"),
        (OWN + "}, freeze: codec}", "freeze: expected the model latent, got mymodel:Net"),
        (OWN + "}, stage: refine}", "model.name: expected latent with the stage refine, got mymodel:Net"),
    ],
)
def test_what_a_model_of_the_users_code_cannot_have_is_a_fault(lines: str, fault: str) -> None:
    assert any(fault in found for found in faults(f"name: job\n{lines}\n")), faults(f"name: job\n{lines}\n")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("train: {batch: auto}", "train.batch: expected a whole number of at least 1, got 'auto'"),
        ("train: {}\nresources: {gpu_memory_gb: atuo}", "or auto, got 'atuo'; did you mean auto?"),
        (
            "command: a\nsuccess: {exit_code: 0}\nresources: {gpu_memory_gb: auto}",
            "auto works with the onboard trainer only",
        ),
    ],
)
def test_auto_where_nobody_could_answer_it_is_a_fault(lines: str, fault: str) -> None:
    (told,) = faults(f"name: job\n{lines}\n")
    assert fault in told


ALONE, FIRST, OTHER = "the only one with several", "on a CPU the lowest", "no other was measured"


@pytest.mark.parametrize(
    ("train", "model", "reason"),
    [
        ("", "spectral", FIRST),
        ("data: {task: shallow_water, points: 32}", "spectral", FIRST),
        ("data: {task: shallow_water, points: 24}", "latent", OTHER),
        ("data: {task: compressible_3d, train: 8}", "latent", OTHER),
        ("data: {task: 'mine:make'}", "latent", OTHER),
        ("data: {task: darcy}", "latent", FIRST),
        ("data: [{}, {task: burgers}]", "latent", ALONE),
        ("stages: [operator, refine]", "latent", ALONE),
        ("model: {patch: 4}", "latent", ALONE),
        ("model: {name: fno}", "fno", "as the job says"),
    ],
)
def test_a_job_without_a_model_gets_the_measured_one_and_keeps_it(
    train: str, model: str, reason: str
) -> None:
    spec = load(f"name: job\ncode: {{path: .}}\ntrain: {{{train}}}\n")
    assert f"; {model}: {reason}" in program_of(spec).summary
    stored = dump_job(spec)
    job = read_job(stored.replace(f'"name": "{model}"', '"name": "fno"', 1))
    assert read_job(stored) == spec and job.train is not None and job.train.model.name == "fno"


def test_what_earlier_versions_had_is_refused_in_a_file_and_read_in_a_stored_job() -> None:
    former = TRAIN + "  strategy: diloco\nretry: {slow: 1, host: 2}\n"
    refused = faults(former)
    assert refused[0].startswith("job.yaml:3: train.strategy: expected one of auto, single, ddp, fsdp2, got")
    assert refused[1].startswith("job.yaml:4: retry.slow")
    stored = dump_job(load(former.replace("diloco", "fsdp2").replace("slow", "hang")))
    stored = stored.replace('"fsdp2"', '"diloco"', 1).replace('"hang": 1', '"slow": 1')
    job = read_job(stored.replace('"name": "spectral", ', ""))
    assert job.train is not None and (job.train.strategy, job.train.model.name) == ("ddp", "latent")
    assert job.retry == {"host": 2}
