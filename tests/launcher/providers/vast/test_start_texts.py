"""Whatever a machine that does not start reports, the wait for it is short, and its job is not to blame."""

import json
from pathlib import Path

import pytest

from tests.launcher.providers.vast.rows import NOW, instance_row
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.boot_timeouts import BootTimeouts
from vastrun.launcher.providers.vast import boot
from vastrun.launcher.providers.vast.rental import instance_of

_CATALOGUE: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "recordings" / "status-messages.json").read_text(encoding="utf-8")
)
HARMLESS = _CATALOGUE.pop("not a fault")
CATALOGUE = [text for texts in _CATALOGUE.values() for text in texts]
OTHERS = (
    "error pulling image configuration: download failed after attempts=6",
    "failed to register layer: unexpected eof",
    "Error response from daemon: mkdir /var/lib/docker: permission denied",
    "Error response from daemon: Bind for 0.0.0.0:40101 failed: port is already allocated",
    "write /var/lib/docker: no space left on device",
    "docker_build() error writing dockerfile",
    "a text that nobody has seen before",
)


def ended_after_s(*texts: str) -> float:
    """Seconds of the wait for a machine that reports these texts, one a second, and stays with the last."""
    timeouts = BootTimeouts(started_at=NOW, progress_at=NOW)
    for second in range(3600):
        text = texts[min(second, len(texts) - 1)]
        row = instance_row(actual_status="loading", cur_state="running", ports=None, status_msg=text)
        assert boot.fault(row) is None
        if timeouts.exceeded_limit(NOW + second):
            assert text in timeouts.exceeded_limit(NOW + second)
            return second
        timeouts.note_silent(instance_of(row, NOW + second), NOW + second)
    return 3600


def test_the_catalogue_is_whole() -> None:
    assert (len(CATALOGUE), len(HARMLESS)) == (28, 4)


@pytest.mark.parametrize("text", [*CATALOGUE, *OTHERS])
def test_an_error_that_stands_still_ends_the_wait_soon_and_blames_no_job(text: str) -> None:
    assert boot.cause_in(text) is None
    assert ended_after_s("a3ed95caeb02: Pulling fs layer", text) <= policy.STALLED_S + 5


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_fault_does_not_end_the_wait_before_that(text: str) -> None:
    assert ended_after_s(text) >= policy.STALLED_S
    assert boot.cause_in(text) is None


def test_a_layer_that_stands_still_has_the_long_limit() -> None:
    assert ended_after_s("79436a159dbf: Pull complete") > policy.NO_PROGRESS_S
