"""What Vast charged: its list of charges, summed up by the label of the machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from launcher.providers.vast.api import VastApi
from launcher.providers.vast.refusals import silent

_DAY_S = 86400.0


def by_label(api: VastApi, since: float, until: float) -> Mapping[str, float]:
    """Return dollars. Vast counts in whole days: the one before and the one after are asked for, too."""
    sums: dict[str, float] = defaultdict(float)
    for row in api.charges(since - _DAY_S, until + _DAY_S):
        try:
            sums[str(row["metadata"]["label"])] += float(row["amount"])
        except (KeyError, TypeError, ValueError) as error:
            raise silent("a charge that cannot be read") from error
    return sums
