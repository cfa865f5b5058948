"""`plan` in text and as documents: the request, and the offers with their costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from vastrun.contract.texts import how_many
from vastrun.contract.workload import Workloads
from vastrun.launcher.commands.plan import LaunchPlan
from vastrun.launcher.config import program_of
from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.core import Cause, LeftOutFiles, Offer
from vastrun.launcher.core.errors import BudgetError
from vastrun.launcher.core.job import DataFile, JobSpec
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.core.market import UNMEASURED, Lease
from vastrun.launcher.core.secrets import public_job
from vastrun.launcher.decisions.estimates import (
    MarketReport,
    Quote,
    basis_text,
    data_usd,
    expected_usd,
    finishing_usd,
    is_cut_short,
    offer_text,
)
from vastrun.launcher.decisions.history import SpeedHistory, kind_of, kind_text
from vastrun.launcher.decisions.policy import all_attempts_usd, worst_case_usd
from vastrun.launcher.decisions.workload import chosen_workloads, largest_that_fits, needed_gb
from vastrun.launcher.image.lock import ImageRequirements
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import duration, facts, left_out_lines, table, usd
from vastrun.launcher.ui.render.fit import windows_text

_MAX_OFFERS = 8
_SORTED = "FINISH: the expected cost without the limits, by which offers are sorted."
_SUMS = "EXPECTED: the expected cost within the job's limits. AT MOST: the maximum cost."
_GUESS = "assumes that the job needs all of limits.hours ({hours:.3g} h) on a typical machine"
_TOO_LITTLE_TO_FINISH = (
    "The limits may end this job before it finishes; finishing should cost {all} in total."
)


def plan_text(plan: LaunchPlan, width: int | None = None) -> str:
    """Write the plan of a launch. `width`: columns of the terminal."""
    return f"{_request(plan)}\n\n{_offers(plan, width)}"


def _request(plan: LaunchPlan) -> str:
    spec, lease = public_job(plan.spec), plan.lease
    limit = plan.time_limit if lease.life_cause is Cause.TIME_LIMIT else "limits.usd"
    life, idle = duration(lease.life_s), duration(lease.ship_s)
    left_out = "" if plan.left_out is None else left_out_lines(plan.left_out)
    return facts(
        [
            ("job", spec.name),
            ("provider", plan.provider),
            ("machine", offer_text(spec, plan.offers[0]).replace(" at $", "\nat $", 1)),
            ("found", "\n".join(plan.notes)),
            ("lease", f"ends the machine {life} after rent ({limit}), or after {idle} without a job"),
            ("deadline", plan.deadline),
            ("needs", _needs(plan)),
            ("image", _image(spec, plan.offers[0])),
            ("disk", f"{spec.resources.disk_gb:g} GB"),
            ("data", _data(plan)),
            ("ranks", str(spec.world_size)),
            ("trains", program_of(spec).summary),
            ("code", _code(spec)),
            ("setup", "\n".join(spec.setup)),
            ("secrets", ", ".join(secret.name for secret in spec.secrets)),
            ("retry", _tries(spec.retry.items())),
            ("restarts", _tries((spec.restarts or {}).items())),
            ("left out", left_out and f"by the rehearsal: {left_out}"),
            ("refused", "\n".join(map(refusal_text, plan.refusals))),
        ]
    )


def _data(plan: LaunchPlan) -> str:
    """Write which data each machine gets, and how long it takes and costs there."""
    spec, offer, lines = plan.spec, plan.offers[0], list[str]()
    if files := [file for file in spec.data if file.url]:
        bound = "" if all(file.size is not None for file in files) else "at most "
        servers, gb = ", ".join(dict.fromkeys(map(_server, files))), spec.data_gb - spec.sent_gb
        lines.append(f"{bound}{gb:.3g} GB from {servers}")
        if offer.data_s:
            seconds = offer.data_s - offer.sent_s
            each = " on each machine" if spec.nodes > 1 else ""
            lines[0] += f": about {duration(seconds)} and {usd(data_usd(offer, seconds, gb))}{each}"
    lines += filter(None, [upload_text(plan)])
    unchecked = [file.target for file in files if file.sha256 is None and file.md5 is None]
    if unchecked:
        lines.append(f"without a checksum: {', '.join(unchecked)}")
    return "\n".join(lines)


def upload_text(plan: LaunchPlan) -> str:
    """Write what this computer sends, and what that takes where the machine costs money meanwhile."""
    from vastrun.launcher.bundle.local_data import local_files  # slow to import: all that packs

    spec, offer = plan.spec, plan.offers[0]
    count = sum(1 for entry in spec.data if not entry.url for _ in local_files(entry))
    text = f"{how_many(count, 'file')}, {bytes_text(round(spec.sent_gb * 1e9))} from this computer"
    if not offer.sent_s:
        return text if count else ""
    mbps, cost = spec.sent_gb * spec.nodes * 8000 / offer.sent_s, data_usd(offer, offer.sent_s, spec.sent_gb)
    basis = "as last measured" if round(mbps, 1) != SpeedHistory.up_mbps else "assumed"
    waiting = f"{duration(offer.sent_s)}, {usd(spec.nodes * cost)} of waiting"
    return f"{text} at {mbps:.3g} Mbit/s ({basis}): {waiting}; a bucket would take {duration(offer.bucket_s)}"


def _server(file: DataFile) -> str:
    """Write where a file of `data:` comes from."""
    parts = urlsplit(file.url or "")
    if parts.scheme == "hf":
        return "the Hugging Face Hub"
    return f"s3://{parts.netloc}" if parts.scheme == "s3" else parts.hostname or ""


def _needs(plan: LaunchPlan) -> str:
    """Write the estimated needs of a step on a GPU, or the reason why they are unknown."""
    workloads, spec, offer = plan.estimate.workloads, plan.spec, plan.offers[0]
    if workloads is None:
        return plan.estimate.note
    found = chosen_workloads(workloads, spec, offer.gpu_memory_gb)
    if not found:
        return ""
    largest, smallest = found[0], found[-1]
    sizes = [f"{needed_gb(each, spec.world_size):.3g} GB with {windows_text(each)}" for each in found]
    fits = largest_that_fits(workloads, spec, offer.gpu_memory_gb)
    is_part = fits and largest is not smallest and fits < largest.micro_batch
    fitting = f"; {fits} at once fit here" if is_part else ""
    return (
        f"{' and '.join(sizes)} of a GPU ({largest.strategy}){fitting}\n"
        f"{largest.flops / 1e12:.3g} TFLOP a step and rank, "
        f"{largest.traffic_bytes / 1e9:.3g} GB read and written"
    )


def refusal_text(error: BudgetError) -> str:
    """Write the reason why a budget refuses the launch, and how to raise it."""
    return f"{error}\n{error.hint}"


def _image(spec: JobSpec, offer: Offer) -> str:
    """Write the image, its origin, and whether packages are missing."""
    if offer.image is None:
        return ""
    if spec.image is not None:
        chosen = "the job's own" if not spec.image_unpinned else "set by the job; not pinned by a digest"
        if offer.cuda and not ImageRequirements.of(spec.image).cuda:
            chosen += "; its name does not say which CUDA version it needs"
    else:
        chosen = "vastrun's image for this machine"
    lacking = "has all packages" if offer.image_whole else "missing packages are installed at boot"
    return f"{offer.image}\n{chosen}; {lacking}"


def _code(spec: JobSpec) -> str:
    if spec.code is None:
        return "" if spec.command is None else "none is uploaded"
    if spec.code_digest is not None:  # as it was submitted then, wherever that folder is now
        return spec.code.path
    from vastrun.launcher.bundle.checkout import code_tree  # slow to import: all that packs

    sizes = [file.size for file in code_tree(spec).files]
    return f"{spec.code.path}: {how_many(len(sizes), 'file')}, {sum(sizes) / 1e6:.1f} MB"


def _tries(by_cause: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{cause} {tries}x" for cause, tries in by_cause)


def _speeds(offers: Sequence[Offer], spec: JobSpec) -> list[str]:
    """Write the source of each speed in the table, one line per kind of machine."""
    lines: dict[str, None] = {}
    for offer in offers:
        if offer.forecast is None:
            continue
        kind, forecast = kind_text(kind_of(offer)), offer.forecast
        line = f"  guess: {_GUESS.format(hours=spec.limits.hours)}"
        if forecast.basis != "guess":
            line = f"  {kind}: {forecast.steps_per_s:.3g} steps/s, {basis_text(forecast)}"
        lines[line] = None
    return ["SPEED: the source of the training speed.", *lines] if lines else []


def _offers(plan: LaunchPlan, width: int | None) -> str:
    # The first ones cost as good as the same, and are tried in any order.
    # One without a measured speed may miss a deadline: it is sorted last.
    guessed = [one.id for one in plan.offers if not one.forecast or one.forecast.basis in UNMEASURED]
    late = guessed if plan.deadline else []
    offers = sorted(plan.offers, key=lambda offer: (offer.id in late, offer.expected_usd))
    shown = offers[:_MAX_OFFERS]
    speeds = any(offer.forecast for offer in shown)
    finishing = any(finishing_usd(plan.spec, offer) > expected_usd(plan.spec, offer) for offer in shown)
    cells = [
        (
            offer.id,
            offer.host,
            f"{offer.gpus} x {offer.gpu_name}" if offer.gpu_name else "CPU",
            f"{offer.gpu_memory_gb:.3g}" if offer.gpu_memory_gb else "-",
            *([offer.forecast.basis if offer.forecast else ""] if speeds else []),
            usd(offer.usd_per_hour),
            *([usd(finishing_usd(plan.spec, offer))] if finishing else []),
            usd(expected_usd(plan.spec, offer)),
            usd(worst_case_usd(plan.spec, offer)),
        )
        for offer in shown
    ]
    between = (*(["SPEED"] if speeds else []), "$/H", *(["FINISH"] if finishing else []))
    header = ("OFFER", "HOST", "GPUS", "GB", *between, "EXPECTED", "AT MOST")
    numbers = [3, *range(header.index("$/H"), len(header))]
    lines = [table(header, cells, right=numbers, cut=(0, 1, 2), width=width)]
    if len(offers) > _MAX_OFFERS:
        lines.append(f"{len(offers) - _MAX_OFFERS} more")
    lines += _speeds(shown, plan.spec)
    lines += [_SORTED] * finishing
    if any(offer.expected_usd for offer in offers):
        lines.append(_SUMS)
    if is_cut_short(plan.spec, plan.offers[0]):
        all_usd = usd(finishing_usd(plan.spec, plan.offers[0]))
        lines.append(_TOO_LITTLE_TO_FINISH.format(all=all_usd))
    return "\n".join(lines)


class OfferDocument(Document, Offer):
    """An offer, as the job sees it."""

    expected_usd: float
    """Expected cost of the job there within its limits, all nodes together."""
    finishing_usd: float
    """Expected cost of finishing it without its limits, by which offers are sorted; 0: not known."""
    at_most_usd: float
    """Most that its limits let it cost."""
    all_attempts_usd: float
    """The same with all retries of the job."""
    speed: str | None
    """Source of its speed, in words."""

    @classmethod
    def of(cls, offer: Offer, spec: JobSpec) -> OfferDocument:
        """Make the document of an offer for a job."""
        return cls.fill(
            offer,
            expected_usd=expected_usd(spec, offer),
            finishing_usd=finishing_usd(spec, offer),
            at_most_usd=worst_case_usd(spec, offer),
            all_attempts_usd=all_attempts_usd(spec, offer),
            speed=offer.forecast and basis_text(offer.forecast),
        )


class PlanDocument(Document):
    """The plan of a launch, with its costs."""

    job: JobSpec
    """The job, with `<secret>` in place of what is secret."""
    provider: str
    offers: Sequence[OfferDocument]
    """Best first."""
    notes: Sequence[str]
    """Findings of the search in each part of the provider, for example in the partitions of a cluster."""
    worst_case_usd: float
    """On the first offer."""
    lease: Lease
    refused: Sequence[str]
    """Budgets without room for it."""
    deadline: str | None
    expected_end_at: float | None
    workloads: Workloads | None
    """Needs of a step on a rank; null: they were not estimated."""
    not_foretold: str | None
    """Reason why they were not."""
    left_out: LeftOutFiles | None
    """Files that would not be downloaded, by a rehearsal of the job; null: there was none."""

    @classmethod
    def of(cls, plan: LaunchPlan) -> PlanDocument:
        """Make the document of a plan."""
        return cls.fill(
            plan,
            # With null for the sections of other kinds of programs.
            job=any_job_type()(**vars(public_job(plan.spec))),
            offers=[OfferDocument.of(offer, plan.spec) for offer in plan.offers],
            refused=list(map(str, plan.refusals)),
            deadline=plan.spec.limits.deadline,
            workloads=plan.estimate.workloads,
            not_foretold=plan.estimate.note or None,
        )


class QuoteDocument(Document, Quote):
    """The expected cost of finishing the job on one offer."""

    printed_properties = ("usd",)

    offer: OfferDocument


class MarketReportDocument(Document, MarketReport):
    """The market within the job's limits."""

    quotes: tuple[QuoteDocument, ...]
    """Remaining offers, the cheapest to finish first."""
    left: int

    @classmethod
    def of(cls, report: MarketReport, spec: JobSpec) -> MarketReportDocument:
        """Make the document of a market report."""
        quotes = tuple(
            QuoteDocument.fill(one, offer=OfferDocument.of(one.offer, spec)) for one in report.quotes
        )
        return cls.fill(report, quotes=quotes, left=len(quotes))
