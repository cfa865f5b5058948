"""Outbid: raises the bid for a machine that was taken away, where that is cheaper, and continues its run.

The diary says what was done, so that the launcher that comes after one that was killed goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from vastrun.contract import layout
from vastrun.launcher.core import BoxStatus, Cause, Instance, Offer, bills
from vastrun.launcher.core.errors import NoOfferError, UnreachableError, VastrunError
from vastrun.launcher.decisions.bids import MAX_RAISES, RESTART_WAIT_S, offer_at_raised_bid
from vastrun.launcher.decisions.estimates import usd
from vastrun.launcher.decisions.history import speed_history_of
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.run_assessment import KILLED
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_watch import run_rearm
from vastrun.launcher.flow.pace import work_of
from vastrun.launcher.flow.rental import choose_offers_for_run
from vastrun.launcher.flow.run_state import PhaseResult, failed
from vastrun.launcher.ports import Remote

_RAISED = "outbid: its bid is raised to "
_CONTINUED = "the training continues on the same machine"


@dataclass
class BidWatch:
    """Raised bids of a run, and the wait for its machine after the last one."""

    raises: int = 0
    waits_since: float | None = None
    """Time at which its bid was raised; None: no raised bid is waited for."""
    is_sent: bool = False
    """True once the provider has the raised bid from this launcher."""

    @classmethod
    def of(cls, context: RunContext) -> Self:
        """Return the state by the run's diary."""
        if context.run.offer is None or context.run.offer.bid_usd_per_hour is None:
            return cls()
        events = context.services.ledger.events(context.run.id)
        raised = [event.at for event in events if event.text.startswith(_RAISED)]
        continued = [event.at for event in events if event.text == _CONTINUED]
        waits = len(raised) > len(continued)
        return cls(raises=len(raised), waits_since=raised[-1] if waits else None)

    def overdue(self, now: float) -> PhaseResult | None:
        """Return the result of a run whose machine did not come back in time; None: it still may."""
        if self.waits_since is None or now < self.waits_since + RESTART_WAIT_S:
            return None
        return failed(Cause.PREEMPTED, f"outbid; it did not run again in {RESTART_WAIT_S / 60:.0f} min")

    def may_come_back(self, context: RunContext) -> bool:
        """Return whether to wait for a machine that was outbid: its bid was raised, or is raised now."""
        if context.user_request().cause is not None:
            return False
        if self.waits_since is None and (self.raises >= MAX_RAISES or not self._raise_bid(context)):
            return False
        return self.overdue(context.now()) is None and (self.is_sent or self._send_bid(context))

    def _raise_bid(self, context: RunContext) -> bool:
        """Note a higher bid in the run's row, where it is cheaper than another machine. False: it is not."""
        try:
            # Listed again: the machine may have been listed before it was outbid.
            machine = context.machines.own()
            raised = None if machine is None else _cheaper_offer(context, machine)
        except VastrunError:  # without all prices nothing says that it is cheaper
            return False
        run, now = context.run, context.now()
        if run.offer is None or machine is None or raised is None:
            return False
        before, after = (usd(offer.bid_usd_per_hour or 0.0) for offer in (run.offer, raised))
        context.report(f"{_RAISED}{after}/h, {before} before: another machine is expected to cost more")
        # Before the call: no launcher that follows may count less than is charged.
        priced = replace(machine, usd_per_hour=raised.usd_per_hour, extras=raised.extras)
        after_call = bills.repriced(run, priced, now, now)
        context.save(offer=raised, usd_per_hour=after_call.usd_per_hour, meter=after_call.meter)
        self.raises, self.waits_since, self.is_sent = self.raises + 1, now, False
        return True

    def _send_bid(self, context: RunContext) -> bool:
        """Bid what the run's row says: safe to repeat. Return False if the provider refuses."""
        offer, bids = context.run.offer, context.services.provider.abilities.bids
        if bids is None or offer is None or context.run.instance_id is None:
            return False
        try:
            bids.change_bid(context.run.instance_id, offer.bid_usd_per_hour or 0.0)
        except UnreachableError:  # it is sent again
            return True
        except VastrunError as error:
            context.report(f"the bid was not raised: {error}")
            return False
        self.is_sent = True
        return True

    def must_continue(self, box_status: BoxStatus) -> bool:
        """Return whether the run was killed with the container of the machine that came back."""
        return self.waits_since is not None and box_status.exit_code == KILLED

    def resume_run(self, context: RunContext, remote: Remote) -> PhaseResult | None:
        """Start what is left of the run, under a lease of the new price.

        Raises UnreachableError, GoneError.
        """
        offer, machine, services = context.run.offer, context.machine, context.services
        if offer is None or machine is None:
            return None
        secrets = context.secrets()
        if secrets:
            remote.write(layout.INBOX_SECRETS, secrets, mode=0o600)
        words = f"{layout.REARM} again"
        done = run_rearm(words, context.run, offer, context.spec, machine, remote, services)
        if done.exit_code != 0:
            return failed(
                Cause.PREEMPTED, f"outbid; the run cannot continue there: {done.stderr.strip()[-200:]}"
            )
        self.waits_since = None
        context.report(_CONTINUED)
        return None


def _cheaper_offer(context: RunContext, machine: Instance) -> Offer | None:
    """Return the run's offer at a higher bid, where its machine is then cheaper than another one."""
    run, spec, services = context.run, context.spec, context.services
    if services.provider.abilities.bids is None or not context.nodes.is_alone or spec.hold is not None:
        return None
    try:
        other_offers = [offer for offer in choose_offers_for_run(context) if offer.host != run.host]
    except NoOfferError:
        other_offers = []
    known, steps = speed_history_of(services.ledger.measured(), services.provider.name, spec), steps_of(spec)
    return offer_at_raised_bid(
        spec,
        run,
        machine.min_bid_usd_per_hour,
        other_offers,
        interruptions_per_hour=known.bids.per_hour,
        left=max(0.0, 1 - work_of(spec, run.step) / steps) if steps else 1.0,
        now=context.now(),
    )
