"""What the commands say of a machine that does not answer, and of outputs that went with it."""

import pytest

from tests.launcher.terminal import JOB, Terminal
from vastrun.launcher.core.bills import cost_usd


@pytest.fixture
def left(terminal: Terminal) -> Terminal:
    """The terminal, with a detached run that may be tried again."""
    (terminal.folder / "job.yaml").write_text(f"{JOB}retry: {{lost: 2}}\n")
    terminal.launch("--detach")
    terminal.clock.sleep(30)
    return terminal


@pytest.mark.parametrize(
    ("state", "said", "why"),
    [
        ("not_answering", "train (not answering)", "connection timed out"),
        ("not_listed", "train (gone by the list)", "the provider no longer lists its machine"),
    ],
)
def test_a_detached_run_says_what_is_known_of_a_machine_that_does_not_answer(
    state: str, said: str, why: str, left: Terminal
) -> None:
    if state == "not_listed":
        left.market.vanish()
    else:
        left.market.stranded_from = left.clock.now()
    assert said in left.type("status").stdout
    shown = left.type("status", "last").stdout
    assert said in shown and why in shown and "(detached)" not in shown
    assert left.document("status")["runs"][0]["machine_state"] == state


def test_outputs_that_are_fetched_too_late_are_lost_and_nothing_trains_again(left: Terminal) -> None:
    left.clock.sleep(86400)
    end = left.type("resume", "last")
    (run,) = left.ledger.runs()
    assert (end.exit_code, run.cause) == (7, "outputs_lost")
    assert cost_usd(run, left.clock.now()) <= 3 * 1.05
    why = left.type("why", "last").stdout
    assert "OUTPUTS_LOST: not seen for 24.0 h, in which the program may have ended" in why
    assert "here" in why and "gone for certain since" in left.type("status", "last").stdout
