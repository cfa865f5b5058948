"""Time limits of a machine that boots, by how far it is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import HostKeyError, KeyNotAttachedError
from vastrun.launcher.decisions import policy

_LAYER = re.compile(
    r": (Pulling fs layer|Downloading|Verifying Checksum|Download complete|Extracting|Pull complete)"
)
"""Line of Docker that reports progress of an image layer."""
_WORKING = re.compile(rf"{_LAYER.pattern}|: (Waiting|Already exists)|^(Digest|Status): |^success, running")
"""Line that names a step of a start, which may stand for long on a slow host."""
_DIGITS = re.compile(r"\d+")
_MAX_TEXTS = 1000
"""Max. number of different texts: one that changes without end is no progress."""


@dataclass
class BootTimeouts:
    """Time limits of one boot, by its state. All moments are epoch seconds."""

    started_at: float
    progress_at: float
    progress: str = "not listed yet"
    state: str = ""
    lease: str = ""
    running_since: float | None = None
    """Time since which the provider lists it as running, while it does not answer."""
    answers_since: float | None = None
    no_box_since: float | None = None
    texts: set[str] = field(default_factory=set)
    """Texts so far, without numbers: a countdown, or an error that alternates, is no progress."""
    is_working: bool = True
    """True unless it reports something that names no step of a start."""
    layer_at: float = -math.inf
    """Epoch seconds of the last progress of a layer of its image."""
    max_boot_s: float = policy.MAX_BOOT_S
    """Longest wait while layers arrive."""
    untrusted_since: float | None = None
    untrusted_reason: str = ""
    """Reason why whatever answers is not trusted to be the machine."""
    rejected_since: float | None = None
    """Time since which it rejects the run's key, which its provider refused to attach."""
    rejection: str = ""
    queued_since: float | None = None
    """Time since which it waits for its turn."""
    queued_for: str = ""
    """The provider's note on what it waits for."""
    reported_queued_for: str = ""
    is_provider_down: bool = False
    """True while the provider cannot be asked, which is no fault of the host."""
    was_seen_booting: bool = False
    """True once it was seen while not ready."""
    reported: str = ""
    reported_at: float = -math.inf

    def note_queued(self, machine: Instance, now: float) -> str:
        """Note that the machine waits for its turn: its own limits start when that comes.

        Returns the message to report; empty if the last one was a moment ago.
        """
        self.queued_since = self.queued_since or now
        self.started_at = self.progress_at = now
        self.running_since = self.answers_since = self.no_box_since = self.untrusted_since = None
        self.queued_for, self.is_provider_down = machine.note, False
        waited_s = now - self.queued_since
        if waited_s < 3.0 or now - self.reported_at < 15.0:
            return ""
        self.reported_at = now
        left_min = (policy.QUEUE_S - waited_s) / 60
        return f"waits for its turn: {machine.note}; {left_min:.0f} min more at most"

    def note_silent(self, machine: Instance, now: float) -> str:
        """Note that the machine does not answer.

        Returns the message to report; empty if the last one was a moment ago.
        """
        self.queued_since = None
        is_new_state = machine.state != self.state
        progress = machine.state
        if machine.note and machine.state != "running":
            progress += f": {machine.note}"
        # A start that moves on is not stuck: the limit on standing still starts again.
        if progress != self.progress:
            self.progress, self.state = progress, machine.state
            self.is_working = progress == machine.state or _WORKING.search(machine.note) is not None
            text = _DIGITS.sub("", progress)
            if self.is_working or (text not in self.texts and len(self.texts) < _MAX_TEXTS):
                self.texts.add(text)
                self.progress_at = now
            if _LAYER.search(machine.note) is not None:
                self.layer_at = now
        self.running_since = (self.running_since or now) if machine.state == "running" else None
        self.answers_since, self.is_provider_down = None, False
        if progress == self.reported or not (is_new_state or now - self.reported_at >= 30.0):
            return ""
        self.reported, self.reported_at = progress, now
        return progress

    def note_answer(self, lease: str, now: float) -> None:
        """Note that the box answered, with its lease in that state."""
        self.lease, self.running_since, self.queued_since, self.is_provider_down = lease, None, None, False
        self.untrusted_since = self.no_box_since = self.rejected_since = None
        self.answers_since = self.answers_since or now

    def note_no_box(self, now: float) -> None:
        """Note that the machine answers, and has no box yet."""
        self.no_box_since, self.is_provider_down = self.no_box_since or now, False

    def note_untrusted(self, error: HostKeyError, now: float) -> None:
        """Note that something answers which is not the machine, or not yet."""
        self.untrusted_reason, self.is_provider_down = str(error), False
        self.untrusted_since = self.untrusted_since or now

    def note_rejected(self, error: KeyNotAttachedError, now: float) -> str:
        """Note that the machine rejects the run's key. Returns the message the first time, then nothing."""
        news = "" if self.rejected_since else str(error)
        self.rejection, self.rejected_since = str(error), self.rejected_since or now
        return news

    def note_provider_error(self, why: str, now: float) -> str:
        """Note that the provider could not be asked: only the longest limit continues.

        Returns the message to report; mostly empty.
        """
        self.running_since = self.answers_since = self.no_box_since = self.untrusted_since = None
        self.progress_at, self.is_provider_down = now, True
        if why == self.reported and now - self.reported_at < 15.0:
            return ""
        self.reported, self.reported_at = why, now
        left_s = max(0.0, self.started_at + self._boot_s(now) - now)
        return f"cannot check the machine: {why}; waits {left_s / 60:.0f} min more at most"

    def exceeded_limit(self, now: float) -> str:
        """Name the limit that was passed; empty while the machine may still come up."""
        # The most telling first: the longer limits are often over as well, and say less.
        limits = (
            (self.queued_since, policy.QUEUE_S, f"its turn did not come ({self.queued_for})"),
            (self.answers_since, policy.LEASE_PROOF_S, f"the lease is not armed but {self.lease}"),
            (self.no_box_since, policy.ONSTART_S, "it answers, but its onstart script did not run"),
            (self.rejected_since, policy.KEY_S, self.rejection),
            (self.untrusted_since, policy.HOST_KEY_WAIT_S, self.untrusted_reason),
            (self.running_since, policy.ANSWER_S, "it runs but does not answer"),
            (self.progress_at, self._progress_s, f"it makes no progress ({self.progress})"),
            (self.started_at, self._boot_s(now), f"it is not ready ({self.progress})"),
        )
        over = (
            f"{text} after {limit:.0f} s"
            for since, limit, text in limits
            if since is not None and now - since > limit
        )
        return next(over, "")

    @property
    def is_loading(self) -> bool:
        """True while the machine was not seen to run anything yet."""
        seen = (self.running_since, self.answers_since, self.no_box_since, self.untrusted_since)
        return all(since is None for since in seen)

    @property
    def _progress_s(self) -> float:
        """Longest wait for progress: short once it says something else than the steps of a start."""
        return policy.NO_PROGRESS_S if self.is_working else policy.STALLED_S

    def _boot_s(self, now: float) -> float:
        """Return the longest wait for the machine: more while layers of its image arrive."""
        return self.max_boot_s if now - self.layer_at <= policy.LAYER_S else policy.BOOT_S
