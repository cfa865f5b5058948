"""Observations of each assumption in a recorder's answers. Pure functions: no answer makes them raise.

An observation is None where nothing was seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from statistics import median
from typing import Any

from tests.conformance import assumptions as table
from tests.conformance.assumptions import Value
from tests.conformance.recorder import ApiRecorder, Exchange, type_of
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.providers.vast.instance_row import id_of, rows_in

Row = Mapping[str, Any]
_ORDER = re.compile(r"/api/v0/asks/\d+")
LIST, SEARCH, CHARGES = "/api/v1/instances", "/api/v0/bundles", "/api/v0/charges"
SCHEDULES = "/api/v0/commands/schedule_job"
_CLOSE = 0.1
"""Share by which two sizes of the same memory may differ."""
_MAX_NUMBER, _MAX_ROWS, _MAX_WORD, _MAX_AHEAD_S = 1e15, 1000, 40, 366 * 86_400.0


def seen_in(recorder: ApiRecorder) -> dict[str, Value]:
    """Return what was seen of each assumption."""
    seen = {name: observe(recorder) for name, observe in _OBSERVATIONS.items()} | recorder.measured
    return {name: value for name in table.ASSUMPTIONS if (value := seen.get(name)) is not None}


def by_id(instance_id: str) -> str:
    """Return the path of one instance."""
    return f"/api/v0/instances/{instance_id}"


def number_of(value: Any) -> float | None:
    """Return the number; None for what is none, or beyond any that Vast has."""
    return float(value) if type_of(value) == "number" and abs(value) <= _MAX_NUMBER else None


def is_running(row: Row) -> bool:
    """Tell whether the row calls the machine running."""
    return row.get("actual_status") == "running"


def own_rows(recorder: ApiRecorder) -> list[tuple[Exchange, Row]]:
    """Return the machine's rows until its end, asked for by its id."""
    until = ended_at(recorder) or math.inf
    asked = (one for one in _asked_by_id(recorder) if one.asked_at < until)
    return [(one, row) for one in asked for row in _rows_of(one, recorder.instance_id)]


def charges_of(recorder: ApiRecorder) -> Sequence[Row]:
    """Return the rows of the newest answers about charges that are of the machine."""
    pages = (page.fields.get("results") for page in recorder.calls("GET", CHARGES))
    found = (row for rows in pages if isinstance(rows, list) for row in rows[:_MAX_ROWS])
    source = f"instance-{recorder.instance_id}"
    own = [row for row in found if isinstance(row, dict) and row.get("source") == source]
    return list({f"{row.get('start')} {row.get('type')}": row for row in own}.values())


def offered_number(recorder: ApiRecorder, offer_id: str, column: str) -> float:
    """Return that column of an offer by the newest search that has it; 0 where none does."""
    rows = [row for row in reversed(_offers(recorder)) if str(row.get("id")) == offer_id]
    return next((found for row in rows if (found := number_of(row.get(column)) or 0.0) > 0), 0.0)


def is_cut(recorder: ApiRecorder, since: float, until: float) -> bool:
    """Tell whether a question between had no answer: the time that passed then says nothing."""
    return any(one.status == 0 and since <= one.asked_at <= until for one in recorder.exchanges)


def loading_seconds(recorder: ApiRecorder) -> float | None:
    """Return how long after the order the machine was first called running."""
    rows = [*own_rows(recorder), *_listed_rows(recorder)]
    at, since = min((one.asked_at for one, row in rows if is_running(row)), default=None), recorder.rented_at
    return None if at is None or since is None or is_cut(recorder, since, at) else max(0.0, at - since)


def _created(recorder: ApiRecorder) -> Exchange:
    """Return the order that made the machine, or an exchange without an answer."""
    orders = (one for one in recorder.exchanges if one.method == "PUT" and _ORDER.fullmatch(one.path))
    made = (one for one in orders if str(one.fields.get("new_contract")) == recorder.instance_id)
    return next(made, Exchange(method="", path="", asked_at=0.0, answered_at=0.0, status=0))


def _offers(recorder: ApiRecorder) -> list[Row]:
    searches = (one.fields.get("offers") for one in recorder.calls("POST", SEARCH))
    return [row for rows in searches if isinstance(rows, list) for row in rows if isinstance(row, dict)]


def _rows_of(one: Exchange, instance_id: str) -> list[Row]:
    """Return the machine's rows, in whatever shape the answer has them."""
    return [row for row in rows_in(one.fields.get("instances")) if id_of(row) == instance_id]


def _asked_by_id(recorder: ApiRecorder) -> list[Exchange]:
    """Return answers about the machine by its id that say whether there is one."""
    found = recorder.calls("GET", by_id(recorder.instance_id))
    return [o for o in found if o.status in (200, 404) and o.fields and o.fields.get("error") != "auth_error"]


def _listed_rows(recorder: ApiRecorder) -> list[tuple[Exchange, Row]]:
    pages = recorder.calls("GET", LIST)
    return [(page, row) for page in pages for row in _rows_of(page, recorder.instance_id)]


def _in_list(recorder: ApiRecorder, label: object = None) -> Iterator[tuple[float, bool]]:
    """Yield when the list was asked for, and whether the machine stood in it, under that label if given.

    One of several pages may lack it: such a page says nothing.
    """
    for page in recorder.calls("GET", LIST):
        if isinstance(page.fields.get("instances"), list | dict):
            rows = _rows_of(page, recorder.instance_id)
            if rows or not page.fields.get("next_token"):
                yield page.asked_at, any(label in (None, row.get("label")) for row in rows)


def _by_id(recorder: ApiRecorder, *, asked: bool = False) -> list[tuple[float, bool]]:
    """Return when it was answered by its id, or `asked` for, and whether there was a machine."""
    found = ((o.asked_at if asked else o.answered_at, o.fields) for o in _asked_by_id(recorder))
    return [(at, bool(fields.get("instances"))) for at, fields in found]


def ended_at(recorder: ApiRecorder) -> float | None:
    """Return when its end was agreed to."""
    return next((one.answered_at for one in _ends(recorder) if 200 <= one.status < 300), None)


def _ends(recorder: ApiRecorder) -> Iterator[Exchange]:
    return recorder.calls("DELETE", by_id(recorder.instance_id))


def _types(rows: Iterable[Row], names: Iterable[str]) -> Value | None:
    few = list(rows)[:_MAX_ROWS]
    found = {name: {type_of(row[name]) if name in row else "missing" for row in few} for name in names}
    return {name: "|".join(sorted(words)) for name, words in found.items()} if few else None


def _units(recorder: ApiRecorder) -> Value | None:
    """Tell in which units the offers are, by their middle values."""
    units, rows = dict[str, str](), _offers(recorder)
    for name, spans in table.UNIT_SPANS.items():
        numbers = [number for row in rows if (number := number_of(row.get(name))) is not None]
        if numbers:
            middle = median(numbers)
            units[name] = next(
                (unit for unit, (low, high, _) in spans.items() if low <= middle <= high), "other"
            )
    return units or None


def _counts(recorder: ApiRecorder) -> Value | None:
    """Tell whether the list counts as many instances as it has rows, where it has one page."""
    words = set()
    for page in recorder.calls("GET", LIST):
        rows, found = page.fields.get("instances"), number_of(page.fields.get("total_instances"))
        if isinstance(rows, list | dict) and found is not None and not page.fields.get("next_token"):
            words.add("as many" if found == len(rows) else "more" if found > len(rows) else "fewer")
    return next((word for word in ("fewer", "more", "as many") if word in words), None)


def _first_row(recorder: ApiRecorder) -> Row:
    """Return the machine's first row; empty where there was none."""
    return next((row for _, row in own_rows(recorder)), {})


def _first_state(recorder: ApiRecorder) -> Value | None:
    row = _first_row(recorder)
    state = row.get("actual_status")
    word = one_line(state)[:_MAX_WORD] if isinstance(state, str) and state else type_of(state)
    return word if row else None


def _echoed(recorder: ApiRecorder, sent: str, shown: str) -> Value | None:
    """Tell whether the row's field `shown` is what the order said under `sent`."""
    order, row = _created(recorder).sent, _first_row(recorder)
    return ("echoed" if row.get(shown) == order.get(sent) else "other") if order and row else None


def _to_its_offer(recorder: ApiRecorder, column: str) -> float | None:
    """Return how many times that of its offer a column of the machine's row is."""
    shown = number_of(_first_row(recorder).get(column))
    offered = offered_number(recorder, _created(recorder).path.rpartition("/")[2], column)
    return shown / offered if offered and shown and shown > 0 else None


def _memory_scope(recorder: ApiRecorder) -> Value | None:
    """Return whose memory the machine's row shows; its offer has the slice's."""
    ratio = _to_its_offer(recorder, "cpu_ram")
    share = number_of(_first_row(recorder).get("gpu_frac")) or 0.0
    if ratio is None or not 0 < share <= 1:
        return None
    if abs(ratio - 1) <= _CLOSE:
        return "that of a whole host" if share == 1 else "the slice's"
    return "the host's" if abs(ratio * share - 1) <= _CLOSE else "other"


def _min_uptime(recorder: ApiRecorder) -> Value | None:
    minutes = (number_of(row.get("uptime_mins")) for row in _own(recorder, running=True))
    return min((one for one in minutes if one is not None), default=None)


def _start_date(recorder: ApiRecorder) -> Value | None:
    started_at = number_of(_first_row(recorder).get("start_date"))
    return None if started_at is None or recorder.rented_at is None else started_at - recorder.rented_at


def _under_its_label(recorder: ApiRecorder) -> Value | None:
    label = _created(recorder).sent.get("label")
    return _first_seen(recorder, _in_list(recorder, label)) if label else None


def _came_back(recorder: ApiRecorder) -> Value | None:
    """Tell whether a machine was shown again after it had been absent."""
    since = ended_at(recorder)
    if since is None or not any(at > since for at, _ in _by_id(recorder)):
        return None
    for looks in (_by_id(recorder), _in_list(recorder)):
        there = [is_there for at, is_there in looks if at > since]
        if False in there and True in there[there.index(False) :]:
            return "yes"
    return "no"


def _clock_ahead(recorder: ApiRecorder) -> Value | None:
    """Tell how many seconds this computer's clock is ahead of the service's."""
    ahead_s = []
    for one in recorder.exchanges:
        try:
            ahead_s.append(one.answered_at - parsedate_to_datetime(one.date).timestamp())
        except (ValueError, TypeError, OverflowError, OSError):
            continue
    return median(sane) if (sane := [one for one in ahead_s if abs(one) < _MAX_AHEAD_S]) else None


def _first_seen(recorder: ApiRecorder, looks: Iterable[tuple[float, bool]]) -> float | None:
    """Seconds from the order; one that was never seen counts until the last look before its end."""
    since, until, listed = recorder.rented_at, ended_at(recorder) or math.inf, list(looks)
    if since is None:
        return None
    missed = [at for at, _ in listed if since < at < until]
    seen = next((at for at, there in listed if there), missed[-1] if missed else None)
    return None if seen is None or is_cut(recorder, since, seen) else max(0.0, seen - since)


def _last_seen(recorder: ApiRecorder, looks: Iterable[tuple[float, bool]]) -> float | None:
    """Seconds from the agreed end to the last look that still had the machine; 0 where none had."""
    since = ended_at(recorder)
    after = [(at, there) for at, there in looks if since is not None and at >= since]
    if since is None or not after:
        return None
    last = max((at for at, there in after if there), default=since)
    return None if is_cut(recorder, since, last) else last - since


def _first_word(exchanges: Iterable[Exchange]) -> Value | None:
    return next((one.word for one in exchanges if one.status > 0), None)


def _ended_early(recorder: ApiRecorder) -> Value | None:
    """Tell whether the machine was gone before its end was asked for, although it was scheduled for later."""
    until = next((one.asked_at for one in _ends(recorder)), None)  # a machine that is gone refuses it
    if until is None or not any(one.status == 200 for one in recorder.calls("POST", SCHEDULES)):
        return None
    looks = [there for at, there in _by_id(recorder) if at < until]
    return None if not looks else "no" if looks[-1] else "yes"


def _of_order(observe: Callable[[Exchange], Value | None]) -> Callable[[ApiRecorder], Value | None]:
    return lambda recorder: observe(one) if (one := _created(recorder)).status else None


def _own(recorder: ApiRecorder, *, running: bool = False) -> list[Row]:
    return [row for _, row in own_rows(recorder) if is_running(row) or not running]


_OBSERVATIONS: Mapping[str, Callable[[ApiRecorder], Value | None]] = {
    "offer.fields": lambda recorder: _types(_offers(recorder), table.OFFER),
    "offer.units": _units,
    "clock.ahead": _clock_ahead,
    "create.answer": _of_order(lambda one: one.word),
    "create.fields": _of_order(lambda one: _types([one.fields], table.CREATE)),
    "create.seconds": _of_order(lambda one: one.answered_at - one.asked_at),
    "create.state": _first_state,
    "create.label": lambda recorder: _echoed(recorder, "label", "label"),
    "create.image": lambda recorder: _echoed(recorder, "image", "image_uuid"),
    "create.price": lambda recorder: _to_its_offer(recorder, "dph_total"),
    "new.by_id": lambda recorder: _first_seen(recorder, _by_id(recorder, asked=True)),
    "new.in_list": lambda recorder: _first_seen(recorder, _in_list(recorder)),
    "new.by_label": _under_its_label,
    "instance.fields": lambda recorder: _types(_own(recorder), table.INSTANCE),
    "instance.running": lambda recorder: _types(_own(recorder, running=True), table.RUNNING),
    "list.fields": lambda recorder: _types((row for _, row in _listed_rows(recorder)), table.INSTANCE),
    "list.counts": _counts,
    "instance.start": _start_date,
    "instance.uptime": _min_uptime,
    "instance.memory": _memory_scope,
    "loading.seconds": loading_seconds,
    "schedule.answer": lambda recorder: _first_word(recorder.calls("POST", SCHEDULES)),
    "schedule.early": _ended_early,
    "schedule.removed": lambda recorder: _first_word(
        one for one in recorder.exchanges if one.method == "DELETE" and one.path.startswith(SCHEDULES)
    ),
    "destroy.answer": lambda recorder: _first_word(_ends(recorder)),
    "gone.by_id": lambda recorder: _last_seen(recorder, _by_id(recorder)),
    "gone.in_list": lambda recorder: _last_seen(recorder, _in_list(recorder)),
    "gone.again": _came_back,
    "charge.fields": lambda recorder: _types(charges_of(recorder), table.CHARGE),
}
"""Observation of each row of the table; the other rows are measured by a probe."""
