"""What is assumed of searches, limits and keys."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.providers.vast.conformance import fields, looking, timing
from launcher.providers.vast.conformance.assumption import Assumption
from launcher.providers.vast.conformance.kinds import Fields, Within, Words
from launcher.providers.vast.conformance.looking import measured

MARKET: Mapping[str, Assumption] = {
    "offer.fields": Assumption(
        text="types of the fields of an offer",
        assumed=Fields(fields.OFFER),
        usual=fields.OFFER,
        look=looking.offer_fields(fields.OFFER),
        how="every offer of the searches",
        rests="rows.OfferRow: an offer without them is passed over",
    ),
    "offer.units": Assumption(
        text="units of an offer's numbers",
        assumed=Fields(fields.UNITS),
        usual=fields.UNITS,
        look=looking.offer_units,
        how="the middle value of each over all offers",
        rests="rows.OfferRow, offers.query: memory, disk, reliability and the end of the contract",
    ),
    "limit.searches": Assumption(
        text="searches that are answered within a minute",
        assumed=Within(10, 10, "searches"),
        usual=10.0,
        look=measured("limit.searches"),
        how="as many as are documented, after the machine has ended; no more",
        rests="limits.LIMITS: how fast a launcher searches",
    ),
    "limit.list": Assumption(
        text="a second list after half a second",
        assumed=Words(("429 text",)),
        usual="429 text",
        look=measured("limit.list"),
        how="two lists 0.5 s apart, once",
        rests="limits.LIMITS, refusals: how a call that comes too early is told",
    ),
    "limit.retry_after": Assumption(
        text="that refusal says when to ask again",
        assumed=Words(("no",)),
        usual="no",
        look=measured("limit.retry_after"),
        how="the header Retry-After of that refusal",
        rests="api._BACK_OFF_S: how long a launcher waits then",
    ),
    "offer.cluster": Assumption(
        text="a search for offers of clusters finds",
        assumed=Words(("clusters alone", "nothing")),
        usual="nothing",
        look=measured("offer.cluster"),
        how="one search with a filter on cluster_id, after the machine has ended",
        rests="offers.query: where a run with several nodes finds its machines",
    ),
    "overlay.list": Assumption(
        text="the list of overlay networks",
        assumed=Words(("200 list",)),
        usual="200 list",
        look=measured("overlay.list"),
        how="one question, after the machine has ended; no network is made",
        rests="overlays.Overlays: a run with several nodes; one machine does without",
    ),
    "clock.ahead": Assumption(
        text="this computer's clock is ahead by",
        assumed=Within(-60, 60, "s"),
        usual=0.0,
        look=timing.clock_ahead,
        how="the middle of all Date headers",
        rests="deadlines, and the bill beside the ledger",
    ),
    "key.bad": Assumption(
        text="an unknown key",
        assumed=Words(("404 auth_error", "401 auth_error", "403 auth_error")),
        usual="404 auth_error",
        look=measured("key.bad"),
        how="one question with a key that is none",
        rests="refusals._TABLE: a key that is revoked is told from a machine that is gone",
    ),
}
