"""Hints name only options that the command has."""

import pytest

from vastrun.launcher.cli.batch_submit import hint_for_batch, hint_for_sweep

MISSING = "limits: {usd: 7} in the batch file, or --usd"


@pytest.mark.parametrize(
    ("hint", "batch", "sweep"),
    [
        (MISSING, "limits: {usd: 7} in the batch file", "--usd 7"),
        (
            "limits: {usd: 3.00} or more in the batch file, or --usd; or lower limits in the job",
            "limits: {usd: 3.00} or more in the batch file; or lower limits in the job",
            "--usd 3.00 or more; or lower limits in the job",
        ),
        (
            "limits: {usd: USD} in the batch file, or --usd USD, and submit it again",
            "limits: {usd: USD} in the batch file, and submit it again",
            "--usd USD, and submit it again",
        ),
        (
            "--set limits.hours=0.5, or limits.hours in the job file",
            "limits.hours: 0.5 in the job file",
            "--set limits.hours=0.5, or limits.hours in the job file",
        ),
        (
            "--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
            "limits.usd: 5 in the job file",
            "--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
        ),
        (
            "--set limits.usd_per_hour=0.40, or relax resources:",
            "limits.usd_per_hour: 0.40 in the job file, or relax resources:",
            "--set limits.usd_per_hour=0.40, or relax resources:",
        ),
        (
            "--provider vast, or another name: in the batch file",
            "--provider vast, or another name: in the batch file",
            "--provider vast, or another --name",
        ),
        ("", "", ""),
    ],
)
def test_a_hint_names_only_options_that_the_command_has(hint: str, batch: str, sweep: str) -> None:
    assert (hint_for_batch(hint), hint_for_sweep(hint)) == (batch, sweep)
