"""What a user who detaches is told."""

from __future__ import annotations

from dataclasses import replace

from vastrun.launcher.ui.render.background import NOTIFY_HINT, DetachedWork, detached_text

LEFT = DetachedWork(name="calm-heron-3f1a", driver="process 42, log /x.log", collect_s=1800.0, now=0.0)


def test_it_says_what_drives_the_run_and_how_its_end_is_told() -> None:
    text = detached_text(LEFT)
    assert text.startswith("calm-heron-3f1a continues in the background: process 42, log /x.log\n")
    assert NOTIFY_HINT in text
    assert "Notification when it ends: https://ntfy.sh/…" in detached_text(
        replace(LEFT, notifies=["https://ntfy.sh/…"])
    )


def test_it_says_how_long_outputs_are_kept() -> None:
    assert "keeps the outputs for 30m (limits.collect_s)." in detached_text(LEFT)
    assert "for 30m (limits.collect_s), until 1970-01-01" in detached_text(
        replace(LEFT, lease_ends_at=7200.0)
    )


def test_where_the_lease_ends_sooner_it_says_when() -> None:
    text = detached_text(replace(LEFT, lease_ends_at=600.0))
    assert "keeps the outputs until 1970-01-01" in text and "collect_s" not in text


def test_it_says_whether_checkpoints_are_safe() -> None:
    assert "only where the job pushes them" in detached_text(LEFT)
    assert "pushed to s3://models/demo" in detached_text(replace(LEFT, pushed_to="s3://models/demo"))


def test_a_batch_has_points_to_start() -> None:
    assert "starts the remaining points" in detached_text(replace(LEFT, is_batch=True, collect_s=None))
