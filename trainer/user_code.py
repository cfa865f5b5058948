"""User code: import modules of the job's `code:` folder, and explain what fails in them. No torch."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from vastrun.trainer.errors import ConfigError


def add_to_path(code: Path | None) -> None:
    """Let modules be imported from the code folder, where no installed module has the same name."""
    # Last, so that no file of the user hides a library.
    if code is not None and str(code) not in sys.path:
        sys.path.append(str(code))


def import_module(name: str, code: Path | None = None) -> ModuleType:
    """Import a module of the code folder, or of a folder that was added before. Raises its errors."""
    add_to_path(code)
    return importlib.import_module(name)


class ExplainedErrors:
    """A context in which every error of the user's code is raised as a ConfigError of one line.

    The line has the key, the error's type and message, and the place in the user's file.
    """

    def __init__(self, key: str, what: str) -> None:
        self._key = key
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConfigError):
            raise ConfigError(f"{self._key}: {self._what}: {_explained(error)}") from error


def _explained(error: Exception) -> str:
    """Return type, message and place of an error: `TypeError: ... (mymodel.py, line 12)`."""
    # A syntax error's own text ends with its place.
    message = " ".join(str(error).split())
    place = "" if isinstance(error, SyntaxError) else _place(error)
    advice = ""
    if isinstance(error, ModuleNotFoundError) and place:
        advice = "; give the package that has it, as in setup: [pip install PACKAGE]"
    return f"{type(error).__name__}: {message}{place}{advice}"


def _place(error: Exception) -> str:
    """Return the innermost place of an error outside of libraries; empty where there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
        and {"site-packages", "dist-packages"}.isdisjoint(Path(frame.filename).parts)
    ]
    own = [frame for frame in frames if not _is_in_library(frame.filename)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _is_in_library(filename: str) -> bool:
    own, python = Path(__file__).resolve().parent, Path(importlib.__file__).resolve().parents[1]
    return any(Path(filename).resolve().is_relative_to(folder) for folder in (own, python))
