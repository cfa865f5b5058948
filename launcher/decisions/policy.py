"""Policy: decisions about money and time. Pure functions that get `now` as an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from vastrun.contract import stop_budget
from vastrun.launcher.core import BoxStatus, Cause, Instance, Offer, Phase, Run, bills
from vastrun.launcher.core.market import Lease

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

SHIP_S = 900.0
"""Seconds after which a box ends itself if nothing was uploaded."""
BOOT_S = 2400.0
"""Max. seconds until a box answers with its lease armed: a large image takes this long on a slow host."""
MAX_BOOT_S = 5400.0
"""Max. seconds for a box while layers of its image arrive: a pull of hours was seen on a slow host."""
LAYER_S = 300.0
"""Max. seconds between two layers of a running pull."""
QUEUE_S = 86400.0
"""Max. seconds that a machine waits in its provider's queue."""
NO_PROGRESS_S = 900.0
"""Max. seconds for a box whose start shows no progress: one layer of an image may take 10 minutes."""
STALLED_S = 120.0
"""Max. seconds for a box that reports something which names no step of a start, whatever it says: Docker's
five tries of a download pause for 75 s altogether, and a provider's row is up to a minute late."""
ANSWER_S = 300.0
"""Max. seconds until a box that is listed as running answers."""
HOST_KEY_WAIT_S = 40.0
"""Max. seconds for a box with another host key than its log names: it may create its keys late."""
KEY_S = 30.0
"""Max. seconds for a box that rejects the run's SSH key, which its provider refused to attach.

Its start script, which was seen to start 16 s late, adds the key, too.
"""
ONSTART_S = 120.0
"""Max. seconds until a machine that answers has a box: its onstart script was seen to start 16 s late."""
LEASE_PROOF_S = 60.0
"""Max. seconds until the lease of a box that answers is armed."""
STOP_S = 150.0
"""Max. seconds until a training stops on request: the supervisor's own limits are below this."""
DISK_POLL_S = 15.0
"""Seconds between two checks for space on this computer's disk."""
INVALID_STATUS_S = 60.0
"""Seconds after which a box with only invalid statuses is given up."""
REARM_S = 60.0
"""Seconds between two attempts to arm a lease that the box reports dead."""
DEAD_S = 30.0
"""Seconds for the lease to write an exit code after the run on the box died."""
LIMIT_SLACK_S = 120.0
"""Seconds after its lease's end for which a box may still exist before the launcher destroys it."""
LEASE_DELAY_S = 3.0
"""Seconds from a lease's end to its machine's: the lease looks at its clock once a second, then asks."""
LATE_GRACE_S = 300.0
"""Seconds for which a launcher that finds a run past its limits may download what is there."""
DRIVER_TIMEOUT_S = 600.0
"""Seconds without a sign of the driver after which another launcher may take its run."""
ABSENT_S = 10.0
"""Seconds of absence after which a machine counts as gone although no launcher ended it."""
BUSY_S = 1800.0
"""Max. seconds, without a break in one step, for a provider that limits the rate of requests."""
KEY_REJECTED_S = 60.0
"""Max. seconds for a provider that rejects the key of a run that has a machine."""
LINK_MBPS = 1000.0
"""Min. speed in Mbit/s between paid machines of a run: below it, GPUs wait for the network."""
DESTROY_TRIES = 10
"""Max. attempts to destroy. With their waits more than 5 minutes: a connection is often back by then."""
RENT_TRIES = 5
START_S = 20.0
"""Usual seconds from a running machine to its training: it is checked, and the job is uploaded."""
POLL_INTERVAL_S = 1.0
"""Seconds between two polls of the box of the only run of a launcher."""
_MAX_POLLS_PER_S = 12.0
"""Max. polls per second of all boxes together: each costs this computer some milliseconds."""
MIN_TRAINING_S = 60.0
"""Min. seconds that a job's money must pay for a loaded machine; less is not worth a training."""
SLOW_SHARE = 0.6
"""Share of its kind's speed below which a machine is slow."""
SLOW_RUNS = 3
"""Min. runs on other hosts that show the speed of a kind of machine."""
SLOW_SEEN_S = 180.0
SLOW_SEEN_STEPS = 10
"""Min. seconds and steps of a training before its machine counts as slow: at first it may still warm up."""
GPU_CONTEXT_GB = 0.8
"""GPU memory in GB of CUDA and its libraries, besides tensors."""
GPU_MESSAGES_GB = 0.5
"""GPU memory in GB of the buffers for messages between ranks."""
GPU_FRAGMENTS = 1.1
"""Factor for fragmentation: memory of the allocator over memory of tensors."""
DOWN_GB = 6.0
"""Usual download in GB: an image with torch, compressed, set-up and data."""
_SETUP_GB = 2.0
"""Part of DOWN_GB for set-up and data."""
UP_GB = 2.0
"""Usual upload in GB: checkpoints and outputs."""
_MAX_RESERVED_SHARE = 0.2
"""Max. share of a job's money reserved for storage and traffic: the rest must pay for time."""
_PAID_COLLECT_S = 1800.0
_FREE_COLLECT_S = 86400.0


def poll_interval_s(runs: int) -> float:
    """Return the seconds between two polls of a box, where one launcher drives `runs` runs."""
    return max(POLL_INTERVAL_S, runs / _MAX_POLLS_PER_S)


def queue_poll_interval_s(waited_s: float) -> float:
    """Return the seconds until the next look at a machine that has waited in a queue."""
    return min(15.0, max(0.5, waited_s / 20))


def down_gb(image_gb: float | None) -> float:
    """Return the GB that a machine downloads before it trains; `image_gb`: None where unknown."""
    return DOWN_GB if image_gb is None else image_gb + _SETUP_GB


def link_mbps(spec: JobSpec, *, free: bool) -> float:
    """Return the min. speed in Mbit/s between the run's nodes; 0: it is not measured."""
    if spec.nodes == 1:
        return 0.0
    asked = spec.resources.link_mbps
    return asked if asked is not None else 0.0 if free else LINK_MBPS


def worst_case_usd(spec: JobSpec, offer: Offer) -> float:
    """Return the max. cost of this job on this offer in USD, with usual traffic.

    Each node counts as one machine of the offer.
    """
    life_s = lease_of(spec, offer).life_s
    reserve_usd = _reserve_usd(offer, share_usd(spec), spec.data_gb)
    return spec.nodes * (life_s / 3600 * offer.usd_per_hour + reserve_usd)


def all_attempts_usd(spec: JobSpec, offer: Offer) -> float:
    """Return the max. cost in USD of the job with all retries that follow unasked, on such offers."""
    usd = worst_case_usd(spec, offer) * (1 + sum(spec.retry.values()))
    return usd if spec.limits.usd is None else max(worst_case_usd(spec, offer), min(usd, spec.limits.usd))


def share_usd(spec: JobSpec) -> float | None:
    """Return the USD that each node may spend of the job's limit; None: it sets no limit."""
    return None if spec.limits.usd is None else spec.limits.usd / spec.nodes


def reservation_usd(spec: JobSpec) -> float:
    """Return the USD that a run reserves of its budgets: the max. cost that its limits allow.

    A job without limits.usd may cost its hours at its highest price; a job without either is not rented.
    """
    if spec.limits.usd is not None:
        return spec.limits.usd
    return (spec.limits.usd_per_hour or 0.0) * spec.limits.hours * spec.nodes


def min_usd(offer: Offer) -> float:
    """Return the min. money limit in USD for which a machine loads there and is then kept for MIN_KEPT_S."""
    training_usd = MIN_TRAINING_S / 3600 * offer.usd_per_hour
    # What `lease_of` keeps back of such a limit is no longer there for its time.
    besides_usd = _reserve_usd(offer, None) - _tail_usd(offer)
    leased_usd = min(training_usd + besides_usd, training_usd / (1 - _MAX_RESERVED_SHARE))
    return max(offer.loading_usd + training_usd, leased_usd) + _tail_usd(offer)


def is_money_spent(spec: JobSpec, run: Run, left_s: float) -> bool:
    """Return whether a box whose lease ends it in `left_s` must stop now to stay within the job's money.

    Counts by the box's clock: this computer's may have been changed.
    """
    limit_usd = share_usd(spec)
    if limit_usd is None or run.offer is None:
        return False
    lease = lease_of(spec, run.offer)
    # A stop takes time, too: the grace in which the training saves is paid for like any other minute.
    spent_s = lease.life_s - left_s + lease.grace_s + run.offer.bill_tail_s
    return spent_s / 3600 * run.usd_per_hour + bills.traffic_usd(run.meter) >= limit_usd


def lease_of(spec: JobSpec, offer: Offer) -> Lease:
    """Return the lease that enforces the job's limits for one node, at this offer's price."""
    life_s, life_cause, limit_usd = spec.limits.hours * 3600, Cause.TIME_LIMIT, share_usd(spec)
    if limit_usd is not None and offer.usd_per_hour > 0:
        # Loading and traffic cost, too: set aside first, so that the lease ends before the money does.
        reserve_usd = _reserve_usd(offer, limit_usd, spec.data_gb)
        money_s = (limit_usd - reserve_usd) / offer.usd_per_hour * 3600
        if money_s < life_s:
            life_s, life_cause = max(0.0, money_s), Cause.MONEY_LIMIT
    collect_s = spec.limits.collect_s
    if collect_s is None:
        collect_s = _PAID_COLLECT_S if offer.usd_per_hour > 0 else _FREE_COLLECT_S
    return Lease(
        # A node waits for the slowest of the others before its training is started.
        ship_s=min(SHIP_S if spec.nodes == 1 else SHIP_S + BOOT_S, life_s),
        life_s=life_s,
        life_cause=life_cause,
        # A lease of minutes must not be all grace: most of it is for the training.
        grace_s=min(stop_budget.LEASE_S, life_s / 5),
        collect_s=collect_s,
    )


def deadline_of(spec: JobSpec) -> float | None:
    """Return the job's deadline in epoch seconds; None: it has none."""
    text = spec.limits.deadline
    return None if text is None else datetime.fromisoformat(text).timestamp()


def within_deadline(spec: JobSpec, since: float) -> JobSpec:
    """Return the job with its hours reduced to those from `since` until its deadline."""
    deadline = deadline_of(spec)
    if deadline is None or deadline >= since + spec.limits.hours * 3600:
        return spec
    hours = max(1 / 3600, (deadline - since) / 3600)
    return replace(spec, limits=replace(spec.limits, hours=hours))


def is_deadline_due(spec: JobSpec, offer: Offer | None, now: float) -> bool:
    """Return whether the training must save and stop now, to end before the job's deadline."""
    deadline = deadline_of(spec)
    if deadline is None or offer is None:
        return False
    return now >= deadline - lease_of(spec, offer).grace_s


def keep_until(spec: JobSpec, run: Run, outputs_until: float) -> float:
    """Return until when a machine is kept that has files which look like weights.

    Ends before the lease, which keeps the outputs until `outputs_until`. A free machine, whose lease would
    wait for a day, is kept as long as others, unless the job sets a time.
    """
    if run.offer is None:
        return run.phase_at
    lease = lease_of(spec, run.offer)
    keep_s = spec.limits.collect_s or min(lease.collect_s, _PAID_COLLECT_S)
    ends_at = lease_ends_at(run, lease)
    until = min(run.phase_at + keep_s, outputs_until)
    return (until if ends_at is None else min(until, ends_at)) - DISK_POLL_S * 4


def lease_env(lease: Lease) -> dict[str, str]:
    """Return the lease as the environment variables of docs/box.md."""
    return {
        "LEASE_SHIP_S": f"{lease.ship_s:.0f}",
        "LEASE_LIFE_S": f"{lease.life_s:.0f}",
        "LEASE_LIFE_CAUSE": lease.life_cause.value,
        "LEASE_GRACE_S": f"{lease.grace_s:.0f}",
        "LEASE_COLLECT_S": f"{lease.collect_s:.0f}",
    }


def exceeded_limit(spec: JobSpec, run: Run, now: float) -> Cause | None:
    """Return the limit that the run has passed, with the slack, by this computer's clock and the
    provider's price.

    None: no limit. Nothing that the box reports counts here.
    """
    if run.offer is None or run.rented_at is None or run.released_at is not None:
        return None
    # The lease acts at the limit itself. This is the lock behind it: with the slack it never comes first.
    deadline = deadline_of(spec)
    if deadline is not None and now > deadline + LIMIT_SLACK_S:
        return Cause.TIME_LIMIT
    lease = lease_of(spec, run.offer)
    # A lease counts from when its machine runs. If unseen, it may have loaded for all of BOOT_S.
    if now > (run.meter.began_at or run.rented_at + BOOT_S) + lease.life_s + LIMIT_SLACK_S:
        return lease.life_cause
    if run.phase is Phase.COLLECT and now > run.phase_at + lease.collect_s + LIMIT_SLACK_S:
        return Cause.HOST  # its outputs trickle
    slack_usd, limit_usd = LIMIT_SLACK_S / 3600 * run.usd_per_hour, share_usd(spec)
    if limit_usd is not None and bills.max_cost_usd(run, now) > limit_usd + slack_usd:
        return Cause.MONEY_LIMIT
    return None


def affordable(spec: JobSpec, offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers within the job's hourly price, in the order given."""
    cap = spec.limits.usd_per_hour
    return [offer for offer in offers if cap is None or offer.usd_per_hour <= cap]


def lacks_money_limit(spec: JobSpec, offer: Offer) -> bool:
    """Return whether money would be spent and the job sets no limit on it."""
    return offer.usd_per_hour > 0 and spec.limits.usd is None and spec.limits.usd_per_hour is None


def machines_of_run(run: Run, instances: Sequence[Instance]) -> list[Instance]:
    """Return the machines of this run, by label or id; the machine in its row comes first."""
    found = [i for i in instances if i.label == run.label or i.id == run.instance_id]
    return sorted(found, key=lambda i: i.id != run.instance_id)


def released_at(run: Run, lease_life_s: float, looked_at: float, seen_at: float = 0.0) -> float:
    """Return when a machine that is gone stopped costing: when its end was confirmed, else by its lease.

    `seen_at`: when it was last listed.
    """
    meter = run.meter
    if meter.given_back_at is not None or run.rented_at is None:
        return meter.given_back_at or looked_at
    # Its end was not seen: it was charged until it was missed, but its lease let it live no longer.
    if meter.armed_at is not None:
        ended_at = meter.armed_at + lease_life_s + LEASE_DELAY_S
    else:
        ended_at = (meter.began_at or run.rented_at + BOOT_S) + lease_life_s + LIMIT_SLACK_S
    return min(meter.absent_at or looked_at, max(ended_at, seen_at))


def latest_end(spec: JobSpec, run: Run, offer: Offer) -> float:
    """Return the time after which no limit lets the run's machine live, by this computer's clock.

    Until its lease was seen armed, it may load for as long as layers of its image arrive.
    """
    armed_at = run.meter.armed_at or (run.rented_at or run.phase_at) + MAX_BOOT_S
    return armed_at + lease_of(spec, offer).life_s + LIMIT_SLACK_S + LATE_GRACE_S


def lease_ends_at(run: Run, lease: Lease) -> float | None:
    """Return the latest time at which the box ends itself; None: there is no box.

    The lease is armed when the box starts to run.
    """
    armed_at = run.meter.began_at or run.rented_at
    return None if armed_at is None or run.released_at is not None else armed_at + lease.life_s


def may_have_ended(spec: JobSpec, run: Run, offer: Offer, now: float) -> bool:
    """Return whether a program may have ended, and its lease the machine, since the machine last answered.

    A program that by its speed had steps left was lost with its machine, unless its lease expired.
    """
    lease, answered_at = lease_of(spec, offer), run.meter.answered_at or run.phase_at
    left_s = (run.steps - run.step) / run.steps_per_s if run.steps and run.steps_per_s else 0.0
    ends_at = lease_ends_at(run, lease)
    return now >= answered_at + lease.collect_s + left_s or (ends_at is not None and now >= ends_at)


def download_left_s(box_status: BoxStatus) -> float | None:
    """Return the remaining seconds for which a machine keeps the outputs of an ended training, by its own
    clock.

    None: the training has not ended, or the machine does not report it.
    """
    ends_at = box_status.lease_ends_at
    if box_status.box != "ended" or ends_at is None:
        return None
    return max(0.0, ends_at - box_status.at)


def with_limit(spec: JobSpec, spent_usd: float) -> JobSpec:
    """Return the job with the rest of its money: a retry and the runs before it share one limit."""
    if spec.limits.usd is None:
        return spec
    return replace(spec, limits=replace(spec.limits, usd=max(0.01, spec.limits.usd - spent_usd)))


def _tail_usd(offer: Offer) -> float:
    """Return what the machine may be charged after its end, in USD."""
    return offer.bill_tail_s / 3600 * offer.usd_per_hour


def _reserve_usd(offer: Offer, limit_usd: float | None, data_gb: float = 0.0) -> float:
    """Return the reserve in USD for the longest loading, the usual traffic, the job's data and the bill's
    tail."""
    extras = offer.extras
    reserve = BOOT_S / 3600 * extras.storage_usd_per_hour
    reserve += (DOWN_GB + data_gb) * extras.down_usd_per_gb + UP_GB * extras.up_usd_per_gb
    if limit_usd is not None:
        reserve = min(reserve, (limit_usd - _tail_usd(offer)) * _MAX_RESERVED_SHARE)
    return reserve + _tail_usd(offer)
