"""What `import vastrun` offers: on a box what needs no launcher, elsewhere the launcher's functions, too."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vastrun
from tests.waiting import LONGEST_S

# The launcher needs these; a Python that only trains has neither.
pytest.importorskip("pydantic")
pytest.importorskip("paramiko")

from vastrun.launcher.api import public
from vastrun.launcher.core import errors

SCRIPT = '''\
"""A user's script."""

import vastrun
from vastrun import BatchHandle, JobSpec, PointRow, RunResult, RunHandle, beat, launch
from vastrun.errors import NoOfferError


def best(batch: BatchHandle) -> PointRow:
    return batch.wait(timeout=60.0)[0]


def main(job: JobSpec) -> float:
    beat(1, "eval", loss=0.5)
    run: RunHandle = launch(job, provider="vast", set={"limits.usd": 5})
    try:
        result: RunResult = run.wait()
    except NoOfferError as error:
        raise SystemExit(error.hint) from error
    except vastrun.errors.VastrunError as error:
        raise SystemExit(error.exit_code) from error
    texts: list[str] = [line.text for line in run.logs(follow=True)]
    print(texts, best(vastrun.sweep("job.yaml", {"train.seed": [1, 2]})).values)
    return result.scores["rollout_nrmse"] + result.usd
'''
MISTAKES = """\
launch(3)
usd: str = vastrun.run("last").wait().usd
vastrun.lunch("job.yaml")
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The package as a box has it: its modules and nothing else."""
    (tmp_path / "lib" / "vastrun").mkdir(parents=True)
    for path in Path(vastrun.__file__).parent.glob("*.py"):
        shutil.copy(path, tmp_path / "lib" / "vastrun")
    return tmp_path / "lib"


def on(box: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where only what lies in the box can be imported, and the standard library."""
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(box)!r})\n{program}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S)


def test_on_a_box_the_package_needs_the_standard_library_only(box: Path) -> None:
    done = on(
        box,
        "before = set(sys.modules)\n"
        "import vastrun\n"
        "from vastrun import *\n"
        "beat(1, loss=0.5)\n"
        "assert 'launch' not in dir(vastrun) and 'beat' in dir(vastrun)\n"
        "print(*({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))",
    )
    assert (done.returncode, done.stdout.split()) == (0, ["vastrun"]), done.stderr


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("import vastrun; vastrun.launch", "launch"),
        ("from vastrun import RunHandle", "RunHandle"),
        ("import vastrun; vastrun.errors", "errors"),
        ("from vastrun.errors import NoOfferError", "errors"),
    ],
)
def test_without_the_launcher_its_names_say_where_it_is(box: Path, program: str, name: str) -> None:
    done = on(box, program)
    assert done.returncode == 1
    said = f"vastrun.{name} needs the launcher, but vastrun is not installed in this Python"
    assert done.stderr.splitlines()[-1] == f"ImportError: {said}"


def test_on_a_box_a_module_of_the_users_that_is_named_launcher_is_left_alone(box: Path) -> None:
    (box / "launcher.py").write_text("raise SystemExit('imported')")
    done = on(box, "import vastrun; dir(vastrun); vastrun.beat(1); hasattr(vastrun, 'no_such_name')")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'vastrun' has no attribute 'lunch'"):
        vastrun.lunch  # noqa: B018


def test_importing_the_package_imports_nothing_of_the_launcher() -> None:
    program = "import sys, vastrun; dir(vastrun); print([name for name in sys.modules if 'launcher' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.stdout == "[]\n"


def test_the_package_and_the_launcher_agree_on_the_names() -> None:
    assert sorted(vastrun._LAUNCHER_NAMES) == sorted(public.__all__)
    assert all(getattr(vastrun, name) is getattr(public, name) for name in public.__all__)
    assert set(public.__all__) | {"beat", "errors"} <= set(dir(vastrun))


def test_every_name_has_a_docstring() -> None:
    assert not [name for name in public.__all__ if not inspect.getdoc(getattr(vastrun, name))]


def test_every_error_of_the_launcher_can_be_caught() -> None:
    kinds = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert set(vastrun.errors.__all__) == kinds
    assert all(getattr(vastrun.errors, name) is getattr(errors, name) for name in kinds)


@pytest.mark.slow
def test_a_typed_script_is_sound_and_its_mistakes_are_found_by_its_type_checker(tmp_path: Path) -> None:
    sound, faulty = tmp_path / "sound.py", tmp_path / "faulty.py"
    sound.write_text(SCRIPT)
    faulty.write_text(SCRIPT + MISTAKES)
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    words = [sys.executable, "-m", "mypy", "--strict", sound.name, faulty.name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S)
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(":")[0] for line in found] == [faulty.name] * 3, done.stdout
    told = ("Argument 1 has incompatible type", "Incompatible types in assignment", "has no attribute")
    assert all(text in line for text, line in zip(told, found, strict=True)), found
