"""Job files: what is read from them, and how all their faults are told."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.launcher.config.job_files import BROKEN, COMMAND, TRAIN, faults, load
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.core.job import Checkpoints, Code, Secret, Success
from vastrun.launcher.package_files import configs_dir
from vastrun.onstart.supervision.environment import fixed_variables


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_file_tells_all_its_faults(path: Path) -> None:
    with pytest.raises(JobFileError) as caught:
        load_job(path.read_text(), path.name)
    assert f"{caught.value}\n" == path.with_suffix(".expected").read_text()


@pytest.mark.parametrize("path", sorted(configs_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_job(path: Path) -> None:
    assert load_job(path.read_text(), path.name, (), str(path.parent)).name == path.stem.replace("_", "-")


def test_a_job_of_two_lines_trains_with_the_defaults() -> None:
    spec = load(TRAIN)
    assert spec.train is not None
    assert (spec.name, spec.train.steps, spec.world_size) == ("job", 1500, 1)


def test_a_section_with_nothing_in_it_is_as_if_it_were_not_there() -> None:
    assert load(TRAIN + "limits:\nenv:\noutputs:\nsecrets:\nimage:\n") == load(TRAIN)


def test_a_job_goes_through_the_ledger_and_back() -> None:
    spec = load(
        COMMAND
        + "command: [a]\nsecrets: [A, {name: B, file: ~/b}, {name: C, command: c}]\n"
        + "code: {}\nretry: {hang: 2}\nlimits: {usd: 3}\n"
    )
    assert read_job(dump_job(spec)) == spec
    trained = load(TRAIN + "  data: {betas: [1]}\n")
    assert read_job(dump_job(trained)) == trained


def test_what_earlier_versions_had_is_ignored_in_a_stored_job() -> None:
    spec = load(TRAIN)
    stored = json.loads(dump_job(spec)) | {"volume": {"name": "sets", "gb": 20, "usd_per_month": None}}
    stored["resources"]["down_url"] = "https://example.org/file?token=x"
    assert read_job(json.dumps(stored)) == spec


@pytest.mark.parametrize("value", ["a #b", "#5", "one\ntwo", "&a b", "'a' #b", "a#b"])
def test_a_value_of_set_loses_nothing(value: str) -> None:
    assert load(TRAIN, f"env.NOTE={value}").env == {"NOTE": value}


@pytest.mark.parametrize(("value", "text"), [("'#5'", "#5"), ("!!str 5", "5"), ('"a #b"', "a #b")])
def test_a_value_of_set_is_yaml(value: str, text: str) -> None:
    assert load(TRAIN, f"env.NOTE={value}").env["NOTE"] == text


def test_one_string_will_do_for_a_list() -> None:
    spec = load(
        TRAIN + "resources: {gpu_names: RTX 4090, regions: NO}\nsetup: make\noutputs: a/*\nsecrets: A\n"
    )
    assert spec.resources.gpu_names == ("RTX 4090",)
    assert spec.resources.regions == ("NO",)
    assert (spec.setup, spec.outputs, spec.secrets) == (("make",), ("a/*",), (Secret(name="A"),))


def test_variables_are_taken_as_they_are_written() -> None:
    spec = load(TRAIN + "env: {A: 1, B: 1.50, C: true, D: no, E: 0x10, F: ''}\n")
    assert spec.env == {"A": "1", "B": "1.50", "C": "true", "D": "no", "E": "0x10", "F": ""}


def test_numbers_may_be_written_as_scientists_write_them() -> None:
    spec = load(TRAIN + "  steps: 010\n  optim: {lr: 1e-3, clip: 1}\n")
    assert spec.train is not None
    assert (spec.train.optim.lr, spec.train.optim.clip, spec.train.steps) == (0.001, 1.0, 10)


@pytest.mark.parametrize("number", [".inf", ".nan", "1e999", "1_000", "1:30", "'1'"])
def test_what_is_no_number_is_not_taken_for_one(number: str) -> None:
    (fault,) = faults(TRAIN + f"limits: {{hours: {number}}}\n")
    assert fault.startswith("job.yaml:3: limits.hours: expected a number above 0, got ")


def test_a_deadline_is_stored_as_one_moment_and_a_wrong_one_is_a_fault_among_the_others() -> None:
    now = datetime(2026, 11, 24, 17, 30, tzinfo=UTC)
    spec = load_job(TRAIN + "limits: {deadline: 18:00}\n", "job.yaml", now=now)
    assert spec.limits.deadline == "2026-11-24T18:00:00+00:00"
    assert read_job(dump_job(spec)) == spec
    with pytest.raises(JobFileError) as caught:
        load_job(TRAIN + "limits:\n  deadline: soon\n  usd: ten\n", "job.yaml", now=now)
    deadline, usd = caught.value.faults
    assert deadline.startswith("job.yaml:4: limits.deadline: expected a time like 18:00")
    assert usd.startswith("job.yaml:5: limits.usd:")


def test_paths_are_those_of_the_job_file() -> None:
    secrets = (
        "[{name: A, file: key}, {name: B, file: ~/key}, {name: C, file: /key}, {name: D, env_file: .env},"
        " {name: E, command: ./token.sh}, {name: F, command: op read x, folder: ~/vault}]"
    )
    spec = load(TRAIN + f"code: {{path: ../src}}\nsecrets: {secrets}\n")
    assert spec.code is not None
    assert spec.code.path == "/home/me/../src"
    assert [secret.file for secret in spec.secrets[:3]] == ["/home/me/key", "~/key", "/key"]
    assert spec.secrets[3].env_file == "/home/me/.env"
    assert [secret.folder for secret in spec.secrets[3:]] == [None, "/home/me", "~/vault"]
    assert load(TRAIN + "code: {path: ~/src}\n", "code.exclude=[data]").code == Code(
        path="~/src", exclude=("data",)
    )


def test_the_command_line_wins_over_the_file() -> None:
    text = TRAIN + "  steps: 5\n  optim: {lr: 1, clip: 2}\nlimits:\n  usd: ten\n"
    spec = load(
        text, "limits.usd=2", "train.optim.lr=1e-4", "env.A=1", "resources.regions=[US, NO]", "train.steps=9"
    )
    assert spec.train is not None
    assert (spec.train.optim.lr, spec.train.optim.clip, spec.train.steps) == (1e-4, 2.0, 9)
    assert (spec.limits.usd, spec.env, spec.resources.regions) == (2.0, {"A": "1"}, ("US", "NO"))


def test_the_command_line_may_take_the_place_of_a_section() -> None:
    spec = load(TRAIN, "train=null", "command=python a.py --n 3", "success.steps=3")
    assert spec.command == ("python", "a.py", "--n", "3")
    assert spec.success == Success(steps=3)


def test_a_section_shared_by_an_anchor_changes_in_one_place_only() -> None:
    text = "name: job\nenv: &shared {A: x}\ntrain:\nretry: {}\nresources: {}\n"
    assert load(text, "env.A=y").env == {"A": "y"}
    text = COMMAND + "command: a\nenv: {A: &a x, B: *a}\n"
    assert load(text, "env.A=y").env == {"A": "y", "B": "x"}


def test_faults_of_the_command_line_come_last_and_name_their_key() -> None:
    wrong = ["limits.usdd=3", "limits.usd=ten", "train.optim.lr=-1", "nonsense", "env=[a"]
    assert faults(TRAIN + "  stepz: 1\n", *wrong) == (
        "job.yaml:3: train.stepz: unknown key; did you mean steps?",
        "--set env: not valid YAML: a list '[' that is never closed by ']'",
        "--set limits.usd: expected a number above 0, got 'ten'",
        "--set limits.usdd: unknown key; did you mean usd?",
        "--set nonsense: expected key=value, as in limits.usd=5",
        "--set train.optim.lr: expected a number above 0, got -1",
    )


def test_an_entry_of_a_list_cannot_be_set_alone() -> None:
    text = TRAIN + "secrets: [A]\n"
    assert faults(text, "secrets.0=B") == (
        "--set secrets.0: secrets is a list; give it whole, as secrets=[a, b]",
    )


@pytest.mark.parametrize("name", sorted(fixed_variables(Path("/box"))))
def test_a_variable_that_vastrun_sets_cannot_be_set_by_a_job(name: str) -> None:
    assert faults(TRAIN + f"env: {{{name}: x}}\n") == (
        f"job.yaml:3: env.{name}: {name} is set by vastrun itself",
    )


BOMB = "env:\n  a0: &a0 [lol]\n" + "".join(
    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
"""A few hundred characters whose aliases stand for a milliard of values."""


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("name: a: b\n", 1, "an unexpected ':'; indent keys of one section alike, quote text"),
        ("name: job\ntrain:\n  steps: 1\n batch: 2\n", 4, "indented differently from the lines before it"),
        ("name: 'job\n", 2, "a quote that is never closed"),
        ("name: \x07\n", 1, "the character U+0007 is not allowed"),
        ("name: job\n---\nname: job\n", 2, "a second document '---'; a job file holds one job"),
        ("name: *other\n", 1, "found undefined alias 'other'"),
        ("name: " + "[" * 5000 + "]" * 5000, 1, "lists or sections are nested too deeply"),
        ("name: " + "{a: " * 3000 + "1" + "}" * 3000, 1, "lists or sections are nested too deeply"),
        (BOMB, 7, "more than 200,000 values, with what each alias * stands for"),
        ("name: &a [*a]\ntrain:\n", 1, "more than 200,000 values, with what each alias * stands for"),
    ],
)
def test_text_that_is_no_yaml_is_told_in_the_same_form(text: str, line: int, fault: str) -> None:
    (told,) = faults(text)
    assert told.startswith(f"job.yaml:{line}: not valid YAML: {fault}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('env: {A: "\\ud800"}', "env.A: contains a lone surrogate"),
        ('image: "x\\udc80"', "image: contains a lone surrogate"),
        (f"ranks: {'9' * 6000}", f"ranks: expected a whole number from 1 to 64, got {'9' * 60}…"),
        (f"ranks: 0x{'f' * 6000}", f"ranks: expected a whole number from 1 to 64, got 0x{'f' * 58}…"),
        (f"image: [{'9' * 6000}]", "image: expected a string"),
    ],
)
def test_a_value_that_no_program_can_hold_is_told_in_a_line(line: str, told: str) -> None:
    (fault,) = faults(f"name: job\ntrain: {{}}\n{line}\n")
    assert fault.startswith(f"job.yaml:3: {told}")
    assert len(fault) < 300


def test_a_file_that_is_a_list_is_no_job() -> None:
    assert faults("- a\n")[0] == "job.yaml:1: expected a section, got a list of 1"


def test_a_tag_that_promises_too_much_is_not_believed() -> None:
    assert faults(TRAIN + "ranks: !!int two\n") == (
        "job.yaml:3: ranks: expected a whole number from 1 to 64, got two",
    )


def test_a_fault_hides_no_other_and_invents_none() -> None:
    text = (
        COMMAND.replace("success", "succes") + "command: python 'a\ntrain: {batch: x, unroll: 50}\nranks: 0\n"
    )
    assert faults(text) == (
        "job.yaml:2: succes: unknown key; did you mean success?",
        "job.yaml:3: command: is not a shell script: no closing quotation",
        "job.yaml:4: train.batch: expected a whole number of at least 1, got 'x'",
        "job.yaml:5: ranks: expected a whole number from 1 to 64, got 0",
    )


def test_no_job_file_can_ask_for_what_only_vastrun_sets_itself() -> None:
    (fault,) = faults(TRAIN + "hold: {slots: 8}\n")
    assert fault.startswith("job.yaml:3: hold: unknown key")
    (fault,) = faults(TRAIN, "hold.slots=8")
    assert "hold: unknown key" in fault
    assert " hold" not in fault.partition("the keys here are")[2]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (".", "expected a path inside the code folder, got '.'"),
        ("./", "expected a path inside the code folder, got './'"),
        ("/etc/passwd", "expected a path inside the code folder, got '/etc/passwd'"),
        ("a/../../b", "expected a path inside the code folder, got 'a/../../b'"),
        ("res/**.csv", "expected ** between slashes only, got 'res/**.csv'"),
        ("***", "expected ** between slashes only, got '***'"),
    ],
)
def test_patterns_that_no_box_can_match_are_told(pattern: str, fault: str) -> None:
    own = "name: own\ncommand: python train.py\n"
    assert [told.partition(": ")[2] for told in faults(own + f"success: {{files: ['{pattern}']}}")] == [
        f"success.files[0]: {fault}"
    ]
    job = f"{own}success: {{exit_code: 0}}\noutputs: ['dir/**/*', '{pattern}', '!{pattern}', '!**/*.tmp']"
    excluded = fault.replace("got '", "got '!")
    assert [told.partition(": ")[2] for told in faults(job)] == [
        f"outputs[1]: {fault}",
        f"outputs[2]: {excluded}",
    ]


OWN = "name: own\ncommand: python train.py {resume:--from}\nsuccess: {exit_code: 0}\n"


def test_checkpoints_of_a_command_are_a_glob_or_a_section_and_the_command_line_adds_to_both() -> None:
    short = load(OWN + "checkpoints: ckpt/*")
    assert short.checkpoints == Checkpoints(files="ckpt/*", keep=2, every_s=60.0)
    assert short.command == ("python", "train.py", "{resume:--from}")
    pushed = load(OWN + "checkpoints: ckpt/*", "checkpoints.push=s3://b/x")
    assert pushed.checkpoints == Checkpoints(files="ckpt/*", push="s3://b/x")
    whole = load(OWN + "checkpoints: {files: ckpt/*, keep: 3, every_s: 5}")
    assert whole.checkpoints == Checkpoints(files="ckpt/*", keep=3, every_s=5)
    load(OWN + "checkpoints: $VASTRUN_OUTPUTS/checkpoint-*")


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        (
            "name: t\ntrain: {}\ncheckpoints: ckpt/*",
            "checkpoints.files: is for command only: the onboard trainer saves on its own",
        ),
        (OWN + "checkpoints: ../ckpt/*", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: ckpt/*\nnodes: 2", "checkpoints.files: needs one machine, got nodes: 2"),
        (OWN + "checkpoints: '**.pt'", "checkpoints.files: expected ** between slashes only"),
        (OWN + "checkpoints: $HOME/ckpt", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: .", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: {keep: 3}", "checkpoints.keep: needs checkpoints.files"),
        (OWN, "command: {resume:...} needs checkpoints"),
        (OWN + "checkpoints: 5", "checkpoints: expected a section, got 5"),
    ],
)
def test_checkpoints_that_cannot_be_kept_are_told(job: str, fault: str) -> None:
    assert any(fault in told for told in faults(job))
