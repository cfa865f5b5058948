"""A file that is moved or removed is named no more by what is run by hand or by CI, and by the docs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READ = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "Makefile",
        "Dockerfile",
        ".ci/run",
        "tests/**/*.sh",
        ".github/**/*.yml",
        "*.md",
        "docs/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
_FOLDERS = "tests|launcher|trainer|onstart|docs|configs|benchmarks"
_PATH = re.compile(rf"(?<![\w./$}}-])(?:{_FOLDERS})/[\w./*{{}},:<>-]*")
_BRACES = re.compile(r"\{([^{}]*)\}")


def expanded(path: str) -> Iterator[str]:
    """Yield the paths that bash makes of its braces."""
    found = _BRACES.search(path)
    if found is None:
        yield path
        return
    for part in found[1].split(","):
        yield from expanded(path[: found.start()] + part + path[found.end() :])


def named_in(text: str) -> Iterator[str]:
    """Yield the paths of the checkout that the text names, but for place-holders, `<name>` and `NN-name`."""
    for found in _PATH.findall(text):
        if "<" not in found and "NN-" not in found:
            yield from expanded(found.rstrip(".,:"))


def is_there(name: str) -> bool:
    """Tell whether the path exists, may have `*` in it, and holds the test that stands behind `::`."""
    path, _, test = name.partition("::")
    places = list(ROOT.glob(path))
    return bool(places) and (not test or f"def {test}(" in places[0].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", READ)
def test_every_path_of_the_checkout_that_a_file_names_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [path for path in named_in(text) if not is_there(path)] == []


def test_paths_are_found_in_commands_and_in_sentences() -> None:
    text = "files=(tests/launcher/{core,no-such}/test_{bills,phases}.py) `docs/box.md`, see launcher/gone.py."
    assert [path for path in named_in(text) if not is_there(path)] == [
        "tests/launcher/no-such/test_bills.py",
        "tests/launcher/no-such/test_phases.py",
        "launcher/gone.py",
    ]
    assert not is_there("tests/launcher/core/test_phases.py::test_that_nobody_wrote")
