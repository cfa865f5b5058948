"""How soon a service does what it was asked for, by a tape. Pure functions; None: it was not seen."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from statistics import median

from launcher.providers.vast.conformance.answers import (
    created_by,
    ended_at_of,
    in_list,
    is_running,
    listed_rows,
    looks_at,
    number_of,
    own_rows,
)
from launcher.providers.vast.conformance.tape import Tape, Value

_MOST_AHEAD_S = 366 * 86_400.0


def seen_by_id_after(tape: Tape) -> Value | None:
    """Tell how long after the order its machine was first shown by its id."""
    looks = [(one.asked_at, bool(one.fields.get("instances"))) for one in looks_at(tape)]
    return _first_seen(tape, looks)


def listed_after(tape: Tape) -> Value | None:
    """Tell how long after the order its machine first stood in the list."""
    return _first_seen(tape, [(at, there) for at, there in in_list(tape)])


def labelled_after(tape: Tape) -> Value | None:
    """Tell how long after the order a list first showed a machine under the label of the order."""
    created = created_by(tape)
    label = created.sent.get("label") if created is not None and isinstance(created.sent, dict) else None
    if not label:
        return None
    under = {page.asked_at for page, row in listed_rows(tape) if row.get("label") == label}
    return _first_seen(tape, [(at, there and at in under) for at, there in in_list(tape)])


def loading_seconds(tape: Tape) -> Value | None:
    """Tell how long after the order the machine was first called running."""
    running = next((one.asked_at for one, row in own_rows(tape) if is_running(row)), None)
    listed = next((one.asked_at for one, row in listed_rows(tape) if is_running(row)), None)
    moments = [at for at in (running, listed) if at is not None]
    if not moments or tape.rented_at is None or is_cut(tape, tape.rented_at, min(moments)):
        return None
    return max(0.0, min(moments) - tape.rented_at)


def start_date_off(tape: Tape) -> Value | None:
    """Tell how many seconds after the order's answer the row says that the machine began."""
    row = next((row for _, row in own_rows(tape)), None)
    started_at = None if row is None else number_of(row.get("start_date"))
    return None if started_at is None or tape.rented_at is None else started_at - tape.rented_at


def create_seconds(tape: Tape) -> Value | None:
    """Tell how long that answer took."""
    created = created_by(tape)
    return None if created is None else created.seconds


def shown_by_id_for(tape: Tape) -> Value | None:
    """Tell how long after its end was agreed to a machine was last shown by its id."""
    return _last_seen(tape, [(one.answered_at, bool(one.fields.get("instances"))) for one in looks_at(tape)])


def listed_for(tape: Tape) -> Value | None:
    """Tell how long after its end was agreed to a machine last stood in the list."""
    return _last_seen(tape, list(in_list(tape)))


def came_back(tape: Tape) -> Value | None:
    """Tell whether a machine was shown again after it had been absent."""
    ended_at = ended_at_of(tape)
    if ended_at is None:
        return None
    for looks in (
        [(one.answered_at, bool(one.fields.get("instances"))) for one in looks_at(tape)],
        list(in_list(tape)),
    ):
        there = [seen for at, seen in looks if at > ended_at]
        if False in there and True in there[there.index(False) :]:
            return "yes"
    return "no" if any(one.answered_at > ended_at for one in looks_at(tape)) else None


def clock_ahead(tape: Tape) -> Value | None:
    """Tell how many seconds this computer's clock is ahead of the service's."""
    aheads = []
    for one in tape.exchanges:
        try:
            ahead_s = one.answered_at - parsedate_to_datetime(one.date).timestamp()
        except (ValueError, TypeError, OverflowError, OSError):
            continue
        if abs(ahead_s) < _MOST_AHEAD_S:
            aheads.append(ahead_s)
    return median(aheads) if aheads else None


def is_cut(tape: Tape, since: float, until: float) -> bool:
    """Tell whether a question between had no answer: the time that passed then says nothing."""
    return any(one.status == 0 and since <= one.asked_at <= until for one in tape.exchanges)


def _first_seen(tape: Tape, looks: Sequence[tuple[float, bool]]) -> float | None:
    """Seconds from the order; one that was never seen counts until the last look before its end."""
    if tape.rented_at is None:
        return None
    seen = next((at for at, there in looks if there), None)
    if seen is None:
        ended_at = ended_at_of(tape)
        missed = [at for at, _ in looks if at > tape.rented_at and (ended_at is None or at < ended_at)]
        seen = missed[-1] if missed else None
    if seen is None or is_cut(tape, tape.rented_at, seen):
        return None
    return max(0.0, seen - tape.rented_at)


def _last_seen(tape: Tape, looks: Sequence[tuple[float, bool]]) -> float | None:
    """Seconds from the agreed end to the last look that still had the machine; 0 where none had."""
    ended_at = ended_at_of(tape)
    after = [(at, there) for at, there in looks if ended_at is not None and at >= ended_at]
    if ended_at is None or not after:
        return None
    last = max((at for at, there in after if there), default=ended_at)
    return None if is_cut(tape, ended_at, last) else last - ended_at
