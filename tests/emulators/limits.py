"""Rate limits: the seconds between two calls of an endpoint with the same key, and from the same address."""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from tests.emulators.answers import ApiError, reply
from tests.emulators.behaviour import Behaviour, refused
from tests.emulators.clock import Clock

SPACING_S: Mapping[str, float] = {
    "create": 4.5,
    "show_instance": 2.0,
    "list_instances": 1.0,
    "destroy": 3.0,
    "change_bid": 5.5,
    "charges": 1.0,
    "list_overlays": 1.0,
}
PENALTY_S: Mapping[str, float] = {"create": 12.0}
"""Who calls too early waits this long from then on."""


@dataclass(frozen=True)
class _Caller:
    endpoint: str
    who: str
    """A key, or an address."""


class Limits:
    """Refuses calls that come too fast."""

    def __init__(self, clock: Clock, behaviour: Behaviour, *, enabled: bool) -> None:
        self.enabled = enabled
        self.refused = 0
        """How many calls were."""
        self._clock = clock
        self._behaviour = behaviour
        self._allowed_at: dict[_Caller, float] = {}
        self._searches: dict[str, deque[float]] = defaultdict(deque)

    def check(self, endpoint: str, key: str, address: str) -> None:
        """The call counts for both; raises ApiError (429) when it comes too early for one of them."""
        if not self.enabled:
            return
        for who in dict.fromkeys((f"key {key}", f"address {address}")):
            if endpoint == "search":
                self._check_searches(who)
            elif endpoint in SPACING_S:
                caller = _Caller(endpoint, who)
                now = self._clock.now()
                spacing = SPACING_S[caller.endpoint]
                if now + 1e-3 < self._allowed_at.get(caller, 0.0):
                    penalty = PENALTY_S.get(caller.endpoint)
                    if penalty:
                        self._allowed_at[caller] = now + penalty
                    self._refuse(spacing, self._behaviour.word("limit.list"))
                self._allowed_at[caller] = now + spacing

    def _check_searches(self, who: str) -> None:
        now, recent = self._clock.now(), self._searches[who]
        while recent and recent[0] <= now - 60:
            recent.popleft()
        a_minute = self._behaviour.number("limit.searches")
        if len(recent) >= a_minute:
            self._refuse(60 / a_minute, "429 object")
        recent.append(now)

    def _refuse(self, spacing_s: float, word: str) -> None:
        """Raises ApiError, but where such a call is answered all the same."""
        if word.startswith("200"):
            return
        self.refused += 1
        usual = reply({"detail": f"API requests too frequent endpoint threshold={spacing_s:g}"}, status=429)
        raise ApiError(usual if word == "429 object" else refused(word))
