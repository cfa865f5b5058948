"""A run: one attempt at a job, its diary, its driver and the evidence of its end."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.model.endings import Cause, Phase, Wish
from launcher.model.market import Offer

LABEL_PREFIX = "vastrun-"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One piece of evidence for a success. `holds` is None when the evidence is missing."""

    name: str
    holds: bool | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the evidence says: no cause means success."""

    cause: Cause | None
    detail: str
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One attempt at a job: a row of the ledger."""

    id: str
    job: str
    """The job's name."""
    spec_json: str
    """The whole JobSpec as validated, so that a resume needs no file."""
    provider: str
    phase: Phase
    out_dir: str
    created_at: float
    phase_at: float
    """When the present phase began."""
    parent: str | None = None
    """The run this one retries or continues."""
    offer: Offer | None = None
    instance_id: str | None = None
    host: str = ""
    usd_per_hour: float = 0.0
    rented_at: float | None = None
    """Epoch seconds; set before the provider is asked, so that cost is never too low."""
    released_at: float | None = None
    """When absence was confirmed."""
    ended_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    failed_in: Phase | None = None
    """The phase that the cause came from."""
    proofs: tuple[Proof, ...] = ()
    wish: Wish = Wish.NONE
    destroy_tries: int = 0
    step: int = 0
    steps: int = 0

    @property
    def label(self) -> str:
        """The label its instance carries."""
        return LABEL_PREFIX + self.id


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling: a line of the run's diary."""

    run_id: str
    at: float
    phase: Phase
    text: str
    usd: float = 0.0
    """Spent so far."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Who drives a run, until when. Nobody else may change its row before that."""

    who: str
    until: float
