"""ASSUMPTIONS: all that vastrun takes for granted of Vast's live service. The emulator reads the same table.

`vastrun doctor --rent` compares each row with what the service does. To add one: a row in one of the parts,
and what the emulator makes of it in `tests/emulators/behaviour.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.providers.vast.conformance.assumption import Assumption
from launcher.providers.vast.conformance.box_rows import BOX
from launcher.providers.vast.conformance.end_rows import BILLS, ENDS
from launcher.providers.vast.conformance.machine_rows import ORDERS, ROWS
from launcher.providers.vast.conformance.market_rows import MARKET
from launcher.providers.vast.conformance.restart_rows import RESTARTS

ASSUMPTIONS: Mapping[str, Assumption] = {
    **MARKET,
    **ORDERS,
    **ROWS,
    **BOX,
    **RESTARTS,
    **ENDS,
    **BILLS,
}
"""By name, in the order in which a run meets them."""
