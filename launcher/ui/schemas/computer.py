"""Shapes of this computer and the live service: findings, settings, images."""

from __future__ import annotations

from launcher.commands.doctor import Finding
from launcher.core import Verdict as RunVerdict
from launcher.image.here import LocalImage
from launcher.image.lock import LockedImage
from launcher.image.verifying import ImageCheck
from launcher.providers.vast.conformance.assumption import State, Value, When
from launcher.providers.vast.conformance.record import Counted
from launcher.ui.schemas.shape import JsonShape


class Findings(JsonShape):
    """Whether this computer and its providers are ready."""

    healthy: bool
    findings: list[Finding]


class CountedMachine(JsonShape, of=Counted):
    """What the ledger counts for the machine."""

    usd: float
    run_usd: float
    """Of all machines of the run."""


class AssumptionRow(JsonShape):
    """An assumption beside what was seen."""

    name: str
    state: State
    text: str
    assumed: str
    seen: Value | None
    """Null: nothing was seen."""
    seen_text: str
    how: str
    rests: str
    when: When


class Conformance(JsonShape):
    """What the live service was seen to do."""

    exit_code: int
    file: str
    run: str
    """Empty: no offer fitted."""
    verdict: RunVerdict | None
    counted: CountedMachine
    billed_usd: float | None
    """Null: nothing was settled yet."""
    rows: list[AssumptionRow]


class ShownSetting(JsonShape):
    """A setting that holds now."""

    key: str
    value: str | float | bool | list[str] | None
    """Null: not set."""
    from_: str
    """`line 3` of the file, `VASTRUN_PROVIDER`, `default`."""


class BudgetState(JsonShape):
    """Where a budget stands; null where there is no limit."""

    of: str
    since: float | None
    limit_usd: float | None
    spent_usd: float
    reserved_usd: float
    left_usd: float | None


class ShownSettings(JsonShape):
    """The user's settings and budgets."""

    file: str
    settings: list[ShownSetting]
    budgets: list[BudgetState]
    faults: list[str]


class ShownImage(JsonShape, of=LockedImage):
    """An image of the lock."""

    variant: str
    reference: str
    """What is rented with."""


class Images(JsonShape):
    """The images of the lock, and those on this computer."""

    locked: list[ShownImage]
    here: list[LocalImage]
    note: str


class VerifiedImage(JsonShape):
    """What was compared of an image."""

    image: str
    holds: bool
    checks: list[ImageCheck]
