"""What is assumed of a machine's end, and of its bill."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.providers.vast.conformance import fields, looking, timing
from launcher.providers.vast.conformance.assumption import Assumption, When
from launcher.providers.vast.conformance.kinds import Fields, Within, Words
from launcher.providers.vast.conformance.looking import measured

_NONE = ("200 instances=null", "404 no_such_instance", "404 not_found")

ENDS: Mapping[str, Assumption] = {
    "destroy.answer": Assumption(
        text="a request to end the machine",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=looking.destroy_answer,
        how="the end of the run",
        rests="VastApi.destroy",
    ),
    "destroy.again": Assumption(
        text="a second such request",
        assumed=Words(("404 no_such_instance", "404 not_found")),
        usual="404 no_such_instance",
        look=measured("destroy.again"),
        how="once, after its absence was confirmed",
        rests="refusals._TABLE: destroy is safe to repeat",
    ),
    "gone.by_id": Assumption(
        text="seconds that a machine that was ended is shown by its id",
        assumed=Within(0, 30, "s"),
        usual=0.0,
        look=timing.shown_by_id_for,
        how="its row, for a minute after its end was agreed to",
        rests="flow/steps.py: its absence is seen twice",
    ),
    "gone.in_list": Assumption(
        text="seconds that it stands in the list",
        assumed=Within(0, 30, "s"),
        usual=0.0,
        look=timing.listed_for,
        how="the list, for a minute after its end was agreed to",
        rests="flow/steps.py, policy.DESTROY_TRIES",
    ),
    "gone.again": Assumption(
        text="it is shown again after it was absent",
        assumed=Words(("no",)),
        usual="no",
        look=timing.came_back,
        how="both, for that minute",
        rests="flow/context.py: two looks are enough",
    ),
    "gone.answer": Assumption(
        text="a machine that was ended, by its id",
        assumed=Words(_NONE),
        usual="200 instances=null",
        look=measured("gone.answer"),
        how="after that minute",
        rests="VastApi.instance",
    ),
    "unknown.answer": Assumption(
        text="an id that never was",
        assumed=Words(_NONE),
        usual="200 instances=null",
        look=measured("unknown.answer"),
        how="one question",
        rests="VastApi.instance",
    ),
}

BILLS: Mapping[str, Assumption] = {
    "charge.fields": Assumption(
        text="types of the fields of a charge",
        assumed=Fields(fields.CHARGE),
        usual=fields.CHARGE,
        look=looking.charge_fields(fields.CHARGE),
        how="the machine's charges",
        rests="rows.charge_of",
        when=When.SETTLE,
    ),
    "charge.gpu": Assumption(
        text="what was charged for GPUs, to the time that it ran",
        assumed=Within(0.8, 1.1, "times"),
        usual=1.0,
        look=measured("charge.gpu"),
        how="charges beside the ledger's seconds and price: loading is free",
        rests="bills: loading costs the disk alone",
        when=When.SETTLE,
    ),
    "charge.disk": Assumption(
        text="what was charged for its disk, to the time that it was rented",
        assumed=Within(0.8, 1.25, "times"),
        usual=1.0,
        look=measured("charge.disk"),
        how="charges beside the ledger's seconds and price",
        rests="bills: the disk costs from the order to the end",
        when=When.SETTLE,
    ),
    "charge.total": Assumption(
        text="all that was charged, to the ledger",
        assumed=Within(0.8, 1.05, "times"),
        usual=1.0,
        look=measured("charge.total"),
        how="charges beside the ledger",
        rests="the promise that the ledger is never below the bill",
        when=When.SETTLE,
    ),
}
