"""The batch file: points from a grid, a list, a CSV file or a search; every fault with its line."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from vastrun.launcher.config import read_job
from vastrun.launcher.config.batch_file import load_batch, load_sweep, points_at
from vastrun.launcher.core.batch import BatchPoint, BatchSpec
from vastrun.launcher.core.errors import JobFileError, UsageError
from vastrun.launcher.ui.render.batch_results import value_text

JOB = "name: demo\nresources: {gpus: 0}\ntrain: {steps: 10, batch: 8, unroll: 1}\n"
HEAD = "name: widths\njob: job.yaml\n"


def loaded(text: str, *, job: str = JOB, **files: str) -> tuple[BatchSpec, list[BatchPoint]]:
    """The batch and its points; `files` by name, without their endings."""
    beside = {"job.yaml": job, **{f"{name}.csv": content for name, content in files.items()}}

    def read(name: str) -> str:
        if name not in beside:
            raise UsageError(f"cannot read {name}")
        return beside[name]

    batch = load_batch(text, "batch.yaml", read, "/here")
    return batch.spec, list(batch.points)


def values(points: list[BatchPoint]) -> list[Mapping[str, Any]]:
    return [dict(point.values) for point in points]


def faults(text: str, **files: str) -> tuple[str, ...]:
    with pytest.raises(JobFileError) as caught:
        loaded(text, **files)
    return caught.value.faults


def test_a_grid_is_every_combination_and_each_point_is_a_whole_job() -> None:
    spec, points = loaded(HEAD + "grid: {train.optim.lr: [1e-3, 3e-3], train.model.dim: [32, 64]}\n")
    assert spec.name == "widths"
    assert values(points) == [
        {"train.optim.lr": lr, "train.model.dim": dim} for lr in (1e-3, 3e-3) for dim in (32, 64)
    ]
    job = read_job(points[3].spec_json)
    assert job.train is not None
    assert (job.name, job.train.optim.lr, job.train.model.dim) == ("demo", 3e-3, 64)


@pytest.mark.parametrize(
    ("batch_file", "job", "typed"),
    [
        ("batch.yaml", "job.yaml", "job.yaml"),
        ("sweeps/lr.yaml", "../jobs/job.yaml", "jobs/job.yaml"),
        ("batch", "demo", None),
    ],
)
def test_a_point_knows_the_job_file_as_it_was_typed(batch_file: str, job: str, typed: str | None) -> None:
    for points in ("list: [{train.seed: 1}]", "search: {samples: 2, space: {train.seed: {choice: [1, 2]}}}"):
        found = load_batch(f"name: widths\njob: {job}\n{points}\n", batch_file, lambda _: JOB, "/here")
        assert read_job(found.points[0].spec_json).job_file == typed
    swept = load_sweep(BatchSpec(name="s", job="a/job.yaml"), JOB, ["train.seed=1,2"], "/here", 4)
    assert read_job(swept.points[0].spec_json).job_file == "a/job.yaml"


def test_a_point_that_is_given_twice_is_a_fault_in_its_line() -> None:
    text = HEAD + "list:\n- {train.seed: 1}\n- {train.seed: 2, train.batch: 16}\n- {train.seed: 1}\n"
    assert faults(text) == (
        "batch.yaml:6: train.seed: point 3 is the same as point 1 (train.seed=1); give each point once",
    )
    (repeated,) = faults(HEAD + "grid: {train.optim.lr: [1e-3, 0.001]}\n")
    assert "point 2 is the same as point 1" in repeated
    (repeated,) = faults(HEAD + "csv: p.csv\n", p="train.seed\n1\n2\n2\n")
    assert repeated.startswith("p.csv:4: train.seed: point 3 is the same as point 2")
    with pytest.raises(JobFileError, match="point 2 is the same as point 1"):
        load_sweep(BatchSpec(name="s", job="job.yaml"), JOB, ["train.seed=1,1"], "/here", 4)


def test_points_that_a_search_draws_twice_are_one() -> None:
    _, points = loaded(HEAD + "search: {samples: 8, space: {train.model.dim: {choice: [32, 64]}}}\n")
    assert sorted(point["train.model.dim"] for point in values(points)) == [32, 64]


def test_a_csv_file_has_a_point_a_line_and_an_empty_cell_leaves_the_jobs_own_value() -> None:
    _, points = loaded(HEAD + "csv: p.csv\n", p="train.seed,train.optim.lr\n1,1e-3\n\n2,\n")
    assert values(points) == [{"train.seed": 1, "train.optim.lr": 1e-3}, {"train.seed": 2}]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("Explain C # language", "Explain C # language"),
        ("#5", "#5"),
        ("a: b", "a: b"),
        ("a: b # c", "a: b # c"),
        ("- a", "- a"),
        ('"one\n two"', "one\n two"),
        ("&top dog", "&top dog"),
        ("[draft] # 2", "[draft] # 2"),
        ("draft#2", "draft#2"),
        (" 1e-3 ", 1e-3),
        ('"[1, 2]"', [1, 2]),
        ("{x: 1}", {"x": 1}),
        ("'# 5'", "# 5"),
        ("null", None),
        ("true", True),
    ],
)
def test_a_cell_of_a_csv_file_loses_nothing(cell: str, value: object) -> None:
    own = "name: own\nresources: {gpus: 0}\ncommand: 'python a.py --x {x}'\nsuccess: {exit_code: 0}\n"
    _, points = loaded(HEAD + "csv: p.csv\n", job=own, p=f"x,y\n{cell},1\n")
    assert values(points) == [{"x": value, "y": 1}]


def test_a_search_draws_within_its_ranges_and_the_same_again() -> None:
    text = HEAD + (
        "search:\n  samples: 32\n  seed: 3\n  space:\n    train.optim.lr: {log: [1e-4, 1e-1]}\n"
        "    train.seed: {int: [5, 8]}\n    train.model.dim: {choice: [32, 64]}\n"
        "    train.noise: {range: [0, 1]}\n"
    )
    drawn = values(loaded(text)[1])
    assert len(drawn) == 32
    assert all(1e-4 <= point["train.optim.lr"] <= 1e-1 for point in drawn)
    assert {point["train.seed"] for point in drawn} == {5, 6, 7, 8}
    assert {point["train.model.dim"] for point in drawn} == {32, 64}
    decades = [
        sum(10.0**-n <= point["train.optim.lr"] < 10.0 ** (1 - n) for point in drawn) for n in (4, 3, 2)
    ]
    assert min(decades) >= 8
    assert values(loaded(text)[1]) == drawn
    assert values(loaded(text.replace("seed: 3", "seed: 3\n  method: random"))[1]) != drawn


def test_the_id_of_a_point_hangs_on_its_content_alone() -> None:
    (a, b) = loaded(HEAD + "grid: {train.seed: [1, 2]}\n")[1]
    (again,) = loaded("job: job.yaml\nname: other\nlist:\n\n- {train.seed: 2}\n")[1]
    assert again.id == b.id != a.id
    tagged = load_batch(
        HEAD + "grid: {train.seed: [1, 2]}\n", "batch.yaml", lambda _: JOB + "tags: new\n", "/"
    )
    assert [point.id for point in tagged.points] == [a.id, b.id]
    assert read_job(tagged.points[0].spec_json).tags == ("new",)
    (turned,) = loaded(HEAD + "list: [{train.batch: 16, train.seed: 1}]\n")[1]
    assert turned.id == loaded(HEAD + "list: [{train.seed: 1, train.batch: 16}]\n")[1][0].id


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("grid: {train.optim.lrr: [1]}\n", "batch.yaml:3: train.optim.lrr: unknown key; did you mean lr?"),
        (
            "grid: {train.optim.lr: [1e-3, -1]}\n",
            "batch.yaml:3: train.optim.lr: expected a number above 0, got -1",
        ),
        ("grid:\n  train.seed: []\n", "batch.yaml:4: grid.train.seed: expected at least one value"),
        ("grid:\n  train.seed: 3\n", "batch.yaml:4: grid.train.seed: expected a list of values"),
        ("grid: {}\n", "batch.yaml:3: grid: has no points"),
        ("grid: {train.seed: [1]}\nlimits: {stop: {failed: 2}}\n", "limits.stop.failed: expected a number"),
        ("grid: {train.seed: [1]}\nlist: []\n", "batch.yaml:4: list: conflicts with grid: give one of them"),
        ("objective: {}\n", "grid: missing; give grid, list, csv or search"),
        ("search: {samples: 4}\n", "search.space: missing"),
        ("search: {space: {train.seed: {int: [0, 9]}}}\n", "search.samples: missing"),
        (
            "search: {samples: 4, space: {train.noise: {log: [0, 1]}}}\n",
            "log: expected numbers above 0, got 0",
        ),
        ("search: {samples: 4, space: {train.noise: {range: [1, 0]}}}\n", "the lower one first"),
        ("csv: p.csv\n", "p.csv:3: expected 2 values, one for each key of line 1, got 1"),
    ],
)
def test_a_fault_is_told_with_its_line_its_key_and_what_was_expected(text: str, told: str) -> None:
    found = faults(HEAD + text, p="train.seed,train.batch\n1,8\n2\n")
    assert any(told in fault for fault in found), found


def test_a_wrong_value_of_a_csv_file_is_told_with_the_line_of_that_file() -> None:
    assert faults(HEAD + "csv: p.csv\n", p="train.seed\n1\nabc\n") == (
        "p.csv:3: train.seed: expected a whole number of at least 0 and below 9223372036854775808, got 'abc'",
    )


def test_all_faults_are_told_at_once_and_each_once() -> None:
    found = faults(HEAD + "grid: {train.optim.lr: [-1, 1e-3], train.seed: [-5, 0, 1]}\n")
    assert len(found) == 2


def test_more_points_than_can_be_run_are_refused_by_their_number() -> None:
    many = ", ".join(map(str, range(1, 321)))
    with pytest.raises(UsageError, match="102,400 points; at most 10,000"):
        loaded(HEAD + f"grid: {{train.seed: [{many}], train.steps: [{many}]}}\n")


def test_a_program_gets_its_values_in_its_command_and_its_environment() -> None:
    command = "python fit.py --lr {lr} ${lr} {none}"
    own = f"name: own\nresources: {{gpus: 0}}\ncommand: '{command}'\nsuccess: {{exit_code: 0}}\n"
    batch = load_batch(HEAD + "grid: {lr: [0.5], note: [a b]}\n", "batch.yaml", lambda _: own, "/here")
    job = read_job(batch.points[0].spec_json)
    assert job.command is not None
    assert "python fit.py --lr 0.5 ${lr} {none}" in job.command[-1]
    assert (job.env["VASTRUN_PARAM_LR"], job.env["VASTRUN_PARAM_NOTE"]) == ("0.5", "a b")


@pytest.mark.parametrize(
    ("command", "env", "unmentioned"),
    [
        ("python fit.py --lr {lr}", "", {"note"}),
        ("python fit.py --lr {lr} --note $VASTRUN_PARAM_NOTE", "", set()),
        ("python fit.py --lr {lr} ${note}", "env: {NOTE: VASTRUN_PARAM_NOTES}", {"note"}),
        ("env | grep VASTRUN_PARAM_ > values", "", set()),
        ("python fit.py", "env: {READS: VASTRUN_PARAM_LR}", {"note"}),
        ("python fit.py", "", {"lr", "note"}),
    ],
)
def test_values_that_neither_the_command_nor_the_environment_mentions_are_known(
    command: str, env: str, unmentioned: set[str]
) -> None:
    own = f"name: own\nresources: {{gpus: 0}}\ncommand: '{command}'\nsuccess: {{exit_code: 0}}\n{env}\n"
    batch = load_batch(HEAD + "grid: {lr: [0.5], note: [a]}\n", "batch.yaml", lambda _: own, "/here")
    assert batch.unmentioned == unmentioned


def test_a_key_of_the_job_needs_no_mention() -> None:
    own = "name: own\nresources: {gpus: 0}\ncommand: ls\nsuccess: {exit_code: 0}\n"
    batch = load_batch(
        HEAD + "grid: {env.LR: ['1'], limits.hours: [1, 2]}\n", "b.yaml", lambda _: own, "/here"
    )
    assert batch.unmentioned == frozenset()


VALUES = ("cosine warm", "[1, 2]", """it's $HOME, "a" \\ `b`""", "")
COMMANDS = (
    "printf %s {v}; true",
    "printf %s '{v}'; true",
    'printf %s "{v}"; true',
    "printf %s $'{v}'; true",
    "printf %s \"\"{v}'' | cat",
    'printf %s "$(printf %s "{v}")" | cat',
    "# don't stop {v}\nprintf %s {v}",
    "cat <<END\n{v}\nEND",
    "cat <<'END' | cat\n{v}\nEND\n",
    'cat <<-"END" && printf %s {v} >&2\n\tit\'s\n\tEND\n',
    "cat <<< {v}",
    r"printf %s \'{v}\' \"{v}\"",
    "bash -c 'printf %s {v}'",
    """bash -c 'printf %s "{v}"'""",
    "env X=1 bash -c 'printf %s {v}' name",
    'printf %s "{v}"',
)
"""Commands that give the value to a program, alone or within a longer word."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("value", VALUES)
def test_a_program_gets_the_value_however_its_place_is_quoted(command: str, value: str) -> None:
    template, got = output_of_point(command, "VALUE"), output_of_point(command, value)
    assert got == tuple(text.replace("VALUE", value) for text in template)


def output_of_point(command: str, value: str) -> tuple[str, str]:
    """What the command of a batch's only point prints, to stdout and stderr."""
    own = f"name: own\nresources: {{gpus: 0}}\ncommand: {json.dumps(command)}\nsuccess: {{exit_code: 0}}\n"
    text = HEAD + f"grid: {{v: [{json.dumps(value)}]}}\n"
    job = read_job(load_batch(text, "batch.yaml", lambda _: own, "/here").points[0].spec_json)
    assert job.command is not None
    done = subprocess.run(job.command, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((word, ("--amp",)) for word in ("on", "yes", "true", "True", "ON")),
        *((word, ()) for word in ("off", "no", "false", "False", "null", "''")),
        ("2", ("--amp", "2")),
        ("O2 fast", ("--amp", "O2 fast")),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        "printf <%s> a {v:--amp} b",
        "printf <%s> a {v:--amp} b | cat",
        "[printf, <%s>, a, '{v:--amp}', b]",
        "[bash, -c, 'printf \"<%s>\" a {v:--amp} b']",
    ],
)
def test_a_flag_is_given_or_left_out(command: str, value: str, words: tuple[str, ...]) -> None:
    command = command if command[0] == "[" else json.dumps(command.replace(" <%s> ", " '<%s>' "))
    own = f"name: own\nresources: {{gpus: 0}}\ncommand: {command}\nsuccess: {{exit_code: 0}}\n"
    (point,) = load_batch(HEAD + f"grid: {{v: [{value}]}}\n", "b.yaml", lambda _: own, "/here").points
    done = subprocess.run(read_job(point.spec_json).command or (), capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"<{word}>" for word in ("a", *words, "b"))


def test_a_flag_within_a_longer_word_is_text_and_one_with_an_equals_sign_has_its_value_in_one_word() -> None:
    own = (
        "name: own\nresources: {gpus: 0}\ncommand: [fit, 'x{v:--amp}', '{v:--amp=}']\nsuccess: {exit_code: 0}"
    )
    (off, two) = load_batch(HEAD + "grid: {v: [off, 2]}\n", "b.yaml", lambda _: own, "/here").points
    assert read_job(off.spec_json).command == ("fit", "x")
    assert read_job(two.spec_json).command == ("fit", "x--amp 2", "--amp=2")


@pytest.mark.parametrize(("value", "printed"), [("on", "a --amp"), ("off", "a "), ("2", "a --amp 2")])
def test_a_flag_in_a_here_document_is_text(value: str, printed: str) -> None:
    assert output_of_point("cat <<END\na {v:--amp}\nEND", value)[0] == f"{printed}\n"


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "True", "FALSE", "true", "false", "Off"])
def test_the_program_gets_a_switch_as_it_is_written(word: str) -> None:
    own = (
        "name: own\nresources: {gpus: 0}\ncommand: 'fit --amp {amp} {amp:--fast}'\nsuccess: {exit_code: 0}\n"
    )
    (point,) = load_sweep(BatchSpec(name="s", job="j.yaml"), own, [f"amp={word}"], "/here", 4).points
    job = read_job(point.spec_json)
    assert job.command is not None and job.command[:3] == ("fit", "--amp", word)
    assert job.env["VASTRUN_PARAM_AMP"] == word == value_text(point.values["amp"])


def test_braces_of_a_program_are_no_flags() -> None:
    own = """name: own
resources: {gpus: 0}
command: [python, -c, "print(f'{lr:.3f} {lr:-9} {lr!r}', {lr})"]
success: {exit_code: 0}
"""
    (point,) = load_batch(HEAD + "grid: {lr: [0.5]}\n", "b.yaml", lambda _: own, "/here").points
    assert (read_job(point.spec_json).command or ())[-1] == "print(f'{lr:.3f} {lr:-9} {lr!r}', 0.5)"


def test_a_search_that_learns_gives_its_space_and_its_points_later() -> None:
    text = HEAD + (
        "search: {method: tpe, samples: 9, seed: 4, space: {train.optim.lr: {log: [1e-4, 1e-2]},"
        " train.model.dim: {choice: [32, 64]}}}\n"
    )
    batch = load_batch(text, "batch.yaml", lambda _: JOB, "/here")
    assert batch.points == [] and batch.search is not None
    assert (batch.search.samples, batch.search.seed) == (9, 4)
    assert [axis.kind for axis in batch.search.space] == ["log", "choice"]
    points = points_at(batch.search, [{"train.optim.lr": 3e-4, "train.model.dim": 64}])
    job = read_job(points[0].spec_json).train
    assert job is not None and (job.optim.lr, job.model.dim) == (3e-4, 64)


def test_a_space_that_makes_no_job_is_told_before_the_search_begins() -> None:
    text = "search: {method: tpe, samples: 9, space: {train.optim.lr: {range: [-1, 1]}}}\n"
    assert "batch.yaml:3: train.optim.lr: expected a number above 0, got -1.0" in faults(HEAD + text)[0]


def test_an_early_stop_goes_by_a_metric_that_is_known_while_a_run_trains() -> None:
    text = "grid: {train.seed: [1]}\nearly_stop: {min_steps: 5, metric: scores.rollout_nrmse}\n"
    assert faults(HEAD + text) == (
        "batch.yaml:4: early_stop.metric: expected a name in metrics.jsonl; "
        "scores are known only at the end of a run",
    )
    assert faults(HEAD + "grid: {train.seed: [1]}\nearly_stop: {rule: asha}\n") == (
        "batch.yaml:4: early_stop.min_steps: missing",
    )


def test_the_goal_of_an_early_stop_is_that_of_the_objective_only_for_the_same_metric() -> None:
    grid = "grid: {train.seed: [1]}\nobjective: {metric: accuracy, goal: max}\n"
    grid += "early_stop: {min_steps: 5, metric: "
    assert loaded(HEAD + grid + "accuracy}\n")[0].early_goal == "max"
    assert loaded(HEAD + grid + "loss}\n")[0].early_goal == "min"
    assert loaded(HEAD + grid + "reward, goal: max}\n")[0].early_goal == "max"


def test_a_sweep_takes_lists_and_ranges() -> None:
    spec = BatchSpec(name="s", job="job.yaml")
    points = load_sweep(spec, JOB, ["train.seed=1,2", "train.optim.lr=1e-4..1e-2"], "/here", 4).points
    assert len(points) == 8
    assert all(1e-4 <= point.values["train.optim.lr"] <= 1e-2 for point in points)
    with pytest.raises(JobFileError, match=r"expected key=a,b or key=low\.\.high"):
        load_sweep(spec, JOB, ["train.seed"], "/here", 4)


def test_two_dots_within_a_quoted_value_or_at_its_beginning_are_no_range() -> None:
    spec = BatchSpec(name="sweep", job="job.yaml")
    values = ['env.A="a..b",../c', "env.B=../d"]
    points = load_sweep(spec, JOB, values, "/here", 4).points
    assert [dict(point.values) for point in points] == [
        {"env.A": "a..b", "env.B": "../d"},
        {"env.A": "../c", "env.B": "../d"},
    ]


def test_a_batch_has_no_key_that_is_still_to_be_answered() -> None:
    told = faults(HEAD + "grid: {resources.gpu_memory_gb: [auto, 8], resources.gpus: [1]}\n")
    assert told == (
        "job.yaml:1: resources.gpu_memory_gb: auto is resolved for a single launch only: give a number, "
        "like the estimate of vastrun plan",
    )
