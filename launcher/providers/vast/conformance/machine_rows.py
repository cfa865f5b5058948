"""What is assumed of orders, and of a machine's row until it is ended."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.providers.vast.conformance import fields, looking, timing
from launcher.providers.vast.conformance.assumption import Assumption
from launcher.providers.vast.conformance.kinds import Fields, Within, Words
from launcher.providers.vast.conformance.looking import measured

_TAKEN = ("410 no_such_ask", "404 no_such_ask", "400 no_such_ask")

ORDERS: Mapping[str, Assumption] = {
    "create.answer": Assumption(
        text="an order",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=looking.create_answer,
        how="the order of the run",
        rests="renting.rent",
    ),
    "create.fields": Assumption(
        text="types of the fields of that answer",
        assumed=Fields(fields.CREATE),
        usual=fields.CREATE,
        look=looking.create_fields(fields.CREATE),
        how="the order of the run",
        rests="renting.rent: the machine's id",
    ),
    "create.seconds": Assumption(
        text="how long that answer takes",
        assumed=Within(0, 30, "s"),
        usual=0.0,
        look=timing.create_seconds,
        how="the order of the run",
        rests="api._TIMEOUT_S: after it nobody knows whether there is a machine",
    ),
    "create.state": Assumption(
        text="actual_status right after",
        assumed=Words(("null", "created", "loading", "scheduling", "running")),
        usual="null",
        look=looking.create_state,
        how="the machine's row, the first time it is shown",
        rests="instance_row.InstanceRow.state, boot.may_answer",
    ),
    "create.label": Assumption(
        text="the label of the order in the machine's row",
        assumed=Words(("echoed",)),
        usual="echoed",
        look=looking.echoed("label", "label"),
        how="the machine's row beside the order",
        rests="flow/machines.py: a launcher that was killed finds its machine",
    ),
    "create.image": Assumption(
        text="the image of the order in the machine's row",
        assumed=Words(("echoed",)),
        usual="echoed",
        look=looking.echoed("image", "image_uuid"),
        how="the machine's row beside the order",
        rests="the ledger's note of what image ran",
    ),
    "create.price": Assumption(
        text="price of the machine to that of its offer",
        assumed=Within(0, 1.02, "times"),
        usual=1.0,
        look=looking.price_ratio,
        how="dph_total of the machine's row and of the offer",
        rests="decisions/offer_check.py, policy.lease_of: how long the money lasts",
    ),
    "create.again": Assumption(
        text="a second order of the same offer, with the same label",
        assumed=Words(_TAKEN),
        usual="410 no_such_ask",
        look=measured("create.again"),
        how="ordered once more with cancel_unavail; what that makes is ended at once",
        rests="renting, flow/renting.py: an order is never repeated blindly",
    ),
    "new.by_id": Assumption(
        text="seconds until a new machine is shown by its id",
        assumed=Within(0, 5, "s"),
        usual=0.0,
        look=timing.seen_by_id_after,
        how="its row, asked for every 2 s from the order on",
        rests="policy.ABSENT_S: a machine is not taken for gone",
    ),
    "new.in_list": Assumption(
        text="seconds until a new machine stands in the list",
        assumed=Within(0, 60, "s"),
        usual=0.0,
        look=timing.listed_after,
        how="the list, asked for every second from the order on",
        rests="VastProvider.list_lag_s: how long one is looked for whose id is not known",
    ),
    "new.by_label": Assumption(
        text="seconds until the list shows it under its label",
        assumed=Within(0, 60, "s"),
        usual=0.0,
        look=timing.labelled_after,
        how="the list, asked for every second from the order on",
        rests="flow/renting.py: an order whose answer is lost is found by its label",
    ),
    "key.attach": Assumption(
        text="an SSH key that is attached while it loads",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=measured("key.attach"),
        how="the run's key, right after the order",
        rests="VastProvider._let_in",
    ),
}

ROWS: Mapping[str, Assumption] = {
    "instance.fields": Assumption(
        text="types of the fields of a machine's row, by its id",
        assumed=Fields(fields.INSTANCE),
        usual=fields.INSTANCE,
        look=looking.instance_fields(fields.INSTANCE),
        how="every such answer",
        rests="instance_row.InstanceRow",
    ),
    "instance.running": Assumption(
        text="further fields once it runs, by its id",
        assumed=Fields(fields.RUNNING),
        usual=fields.RUNNING,
        look=looking.running_fields(fields.RUNNING),
        how="every such answer",
        rests="instance_row.InstanceRow: its addresses, how long it runs",
    ),
    "list.fields": Assumption(
        text="types of the fields of a machine's row, in the list",
        assumed=Fields(fields.INSTANCE),
        usual=fields.INSTANCE,
        look=looking.listed_fields(fields.INSTANCE),
        how="every such answer",
        rests="instance_row.InstanceRow",
    ),
    "list.counts": Assumption(
        text="total_instances of the list, to its rows",
        assumed=Words(("as many",)),
        usual="as many",
        look=looking.list_counts,
        how="every list of one page",
        rests="VastApi.instances: a list that is shorter than it says is refused",
    ),
    "instance.start": Assumption(
        text="start_date after the order",
        assumed=Within(-60, 60, "s"),
        usual=0.0,
        look=timing.start_date_off,
        how="the machine's row, by our clock",
        rests="bills: since when a machine costs",
    ),
    "loading.seconds": Assumption(
        text="seconds until it runs",
        assumed=Within(0, 300, "s"),
        usual=0.0,
        look=timing.loading_seconds,
        how="the first row that calls it running",
        rests="that ten minutes are enough here; policy.BOOT_S waits for 40",
    ),
    "label.rename": Assumption(
        text="another label for a machine that runs",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=measured("label.rename"),
        how="labelled anew while it runs, and back",
        rests="nothing: a user may do it in the console",
    ),
    "label.shown": Assumption(
        text="its row after that has",
        assumed=Words(("the new label",)),
        usual="the new label",
        look=measured("label.shown"),
        how="its row, asked for by its id",
        rests="flow/machines.py: a machine is asked for by its id before its label",
    ),
}
