"""Launchers of their own: what they could not go on with is the same error in the program that waits."""

import inspect

import pytest

from vastrun.launcher.api.drivers import Target, error_in, error_line
from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import JobFileError, ProviderError, VastrunError

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, VastrunError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_through_as_it_was(kind: type[VastrunError]) -> None:
    error = kind(("a", "b")) if issubclass(kind, JobFileError) else kind("what", hint="try")
    found = error_in(error_line(error))
    assert type(found) is kind
    assert (str(found), found.hint, found.cause) == (str(error), error.hint, error.cause)


def test_a_cause_that_is_not_that_of_its_class_comes_through() -> None:
    found = error_in(error_line(ProviderError("what", cause=Cause.PREEMPTED)))
    assert found is not None and found.cause is Cause.PREEMPTED


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Segmentation fault",
        "[]",
        '{"error": "Cause", "message": "", "hint": "", "cause": "hang", "faults": null}',
        '{"error": "nothing", "message": "", "hint": "", "cause": "hang", "faults": null}',
        '{"error": "VastrunError"}',
    ],
)
def test_what_no_launcher_wrote_is_no_error_of_ours(line: str) -> None:
    assert error_in(line) is None


def test_the_command_that_continues_is_named() -> None:
    assert Target("run", "calm-heron-3f1a").resume_command == "vastrun resume calm-heron-3f1a"
    assert Target("batch", "widths").resume_command == "vastrun batch resume widths"
