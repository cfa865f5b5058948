"""The batch file: parses YAML into a BatchSpec and its points, or reports all faults with their lines."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from vastrun.contract.records import as_json
from vastrun.launcher.config import read_job
from vastrun.launcher.config.command import unmentioned, with_parameters
from vastrun.launcher.config.job_loader import JobFaults, checked, load_node, with_overrides
from vastrun.launcher.config.points import (
    KINDS,
    Cells,
    ReadFile,
    SearchAxis,
    SearchFields,
    axis_of,
    check_point_count,
    grid_of,
    points_of,
    samples_of,
    search_in,
)
from vastrun.launcher.config.program_kinds import kind_of
from vastrun.launcher.config.rules import NAME, NAME_EXPECTED
from vastrun.launcher.config.source import BOOL, Fault, SyntaxFault, fault_at, grafted, parse
from vastrun.launcher.config.yaml_reader import YamlReader, plain
from vastrun.launcher.core.batch import BatchPoint, BatchSpec, Search
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.secrets import public_values

_MAX_FAULTS = 40
_JOB_KEYS = frozenset(one.name for one in fields(JobSpec))
_NO_AUTO = "auto is resolved for a single launch only: give a number, like the estimate of vastrun plan"
_BETWEEN = re.compile(r"""\s*([^\s,"'\[\]{}]+?)\s*\.\.\s*([^\s,"'\[\]{}]+)\s*""")
"""`low..high`. Quoted text and lists may contain two dots, and a path may start with them."""


@dataclass(frozen=True, kw_only=True)
class LoadedBatch:
    """A valid batch file."""

    spec: BatchSpec
    points: Sequence[BatchPoint]
    """Points of the batch; empty where a `search` suggests them while the batch runs."""
    search: Search | None = None
    job: Any = None
    """The job as written, without the values of points."""
    unmentioned: frozenset[str] = frozenset()
    """Keys of values that neither the program's command nor its `env:` mentions."""


def load_batch(
    text: str, name: str, read_file: ReadFile, base_dir: str, now: datetime | None = None
) -> LoadedBatch:
    """Return the batch in a file's text, with its points. Raises JobFileError with every fault, UsageError.

    `read_file` returns the text of a file in its folder; paths in it and in the job are relative to
    `base_dir`.
    """
    faults: list[Fault] = []
    try:
        root = parse(text, name)
        spec, axes = _without_points(root, faults)
        if spec is None:
            raise _errors(faults)
        job_text = read_file(spec.job)
        job = parse(job_text, spec.job)
        if search := search_in(axes["search"], faults) if "search" in axes else None:
            drawn, ranges = search
            if drawn.method == "tpe":
                job_name = _beside(name, spec.job)
                return _searching(spec, drawn, ranges, job_text, base_dir, faults, now, job_name)
            points = samples_of(ranges, drawn.samples, drawn.seed, drawn.method)
        else:
            points = points_of(axes, read_file, faults) if not faults else []
    except SyntaxFault as error:
        raise _errors([*faults, error.fault]) from error
    job_name, repeats = _beside(name, spec.job), search is not None
    return _loaded(spec, job, *_jobs_of(points, job, base_dir, faults, now, job_name, repeats=repeats))


def _searching(
    spec: BatchSpec,
    fields: SearchFields,
    axes: Sequence[SearchAxis],
    job_text: str,
    base_dir: str,
    faults: list[Fault],
    now: datetime | None,
    job_name: str,
) -> LoadedBatch:
    """Return a batch whose search suggests its points. Each corner of its space must make a valid job."""
    job = parse(job_text, spec.job)
    corners = [{axis.key: axis.value(u) for axis in axes} for u in (0.0, 0.5, 1.0 - 1e-9)]
    _, not_mentioned = _jobs_of(corners, job, base_dir, faults, now, job_name, repeats=True)
    search = Search(
        samples=fields.samples,
        seed=fields.seed,
        space=tuple(axis.dimension for axis in axes),
        job_text=job_text,
        job_name=job_name,
        base_dir=base_dir,
        now=None if now is None else now.isoformat(),
    )
    return replace(_loaded(spec, job, [], not_mentioned), search=search)


def _loaded(spec: BatchSpec, job: Node, points: Sequence[BatchPoint], names: set[str]) -> LoadedBatch:
    return LoadedBatch(spec=spec, points=points, job=plain(job), unmentioned=frozenset(names))


def is_of_job(point: BatchPoint, job: Any) -> bool:
    """Return whether the point is one of this job, as `LoadedBatch.job` has it, with any code."""
    return _id_with_code(_id_of(job, point.values), read_job(point.spec_json)) == point.id


def with_code(point: BatchPoint, spec: JobSpec) -> BatchPoint:
    """Return the point with its job as its code and data are kept: others make it another point."""
    return replace(point, id=_id_with_code(point.id, spec), spec_json=as_json(spec))


def points_at(search: Search, values: Iterable[Mapping[str, Any]]) -> list[BatchPoint]:
    """Return the points of these values. Raises JobFileError where they make no valid job."""
    cells = [{key: parse(json.dumps(value), "search", key) for key, value in one.items()} for one in values]
    now = None if search.now is None else datetime.fromisoformat(search.now)
    job = parse(search.job_text, search.job_name)
    points, _ = _jobs_of(cells, job, search.base_dir, [], now, search.job_name, repeats=True)
    code = search.code_digest
    return [with_code(one, replace(read_job(one.spec_json), code_digest=code)) for one in points]


def load_sweep(
    spec: BatchSpec,
    job_text: str,
    axes: Iterable[str],
    base_dir: str,
    samples: int,
    now: datetime | None = None,
    sets: Iterable[str] = (),
) -> LoadedBatch:
    """Return the points of `key=a,b` (each value) and `key=low..high` (`samples` values).

    `sets`: values of the job that all points have, as `key=value`. Raises JobFileError with every fault,
    UsageError.
    """
    lists: dict[str, list[Node]] = {}
    ranges: list[SearchAxis] = []
    try:
        for axis in axes:
            key, equals, values = axis.partition("=")
            if not equals or not key or not values:
                fault = Fault(True, 0, axis, "expected key=a,b or key=low..high", "--set")
                raise SyntaxFault(fault)
            if between := _BETWEEN.fullmatch(values):
                low, high = between.groups()
                ranges.append(axis_of(key, parse(f"{{range: [{low}, {high}]}}", "--set", key)))
            else:
                node = parse(f"[{values}]", "--set", key)
                assert isinstance(node, SequenceNode)
                lists[key] = node.value
        job, faults = with_overrides(parse(job_text, spec.job), sets)
    except SyntaxFault as error:
        raise _errors([error.fault]) from error
    drawn = samples_of(ranges, samples, 0, "sobol") if ranges else [{}]
    points = [{**cells, **more} for cells in grid_of(lists) for more in drawn]
    check_point_count(len(points))
    return _loaded(spec, job, *_jobs_of(points, job, base_dir, faults, now, spec.job, repeats=bool(ranges)))


def _errors(faults: Iterable[Fault]) -> JobFileError:
    lines = [str(fault) for fault in sorted(set(faults))]
    more = len(lines) - _MAX_FAULTS
    return JobFileError((*lines[:_MAX_FAULTS], *([f"… and {more} more"] if more > 0 else [])))


def _without_points(root: Node, faults: list[Fault]) -> tuple[BatchSpec | None, dict[str, Node]]:
    """Return the batch, and the sections of its file that define points, by kind; a second kind is a
    fault."""
    axes: dict[str, Node] = {}
    if isinstance(root, MappingNode):
        kept = []
        for key, value in root.value:
            if isinstance(key, ScalarNode) and key.value in KINDS:
                if axes:
                    faults.append(
                        fault_at(key, key.value, f"conflicts with {next(iter(axes))}: give one of them")
                    )
                axes[key.value] = value
            else:
                kept.append((key, value))
        root = MappingNode(root.tag, kept, root.start_mark, root.end_mark)
    reading = YamlReader(root, BatchSpec)
    spec = checked(reading, BatchSpec)
    if spec is not None and not NAME.fullmatch(spec.name):
        reading.fault(("name",), f"{NAME_EXPECTED}, got {spec.name!r}")
    if spec is not None and spec.early_stop is not None and spec.early_stop.metric.startswith("scores."):
        text = "expected a name in metrics.jsonl; scores are known only at the end of a run"
        reading.fault(("early_stop", "metric"), text)
    faults += reading.faults
    if not axes and spec is not None:
        faults.append(fault_at(root, "grid", "missing; give grid, list, csv or search: the points to run"))
    return (None if faults else spec), axes


def _jobs_of(
    points: Sequence[Cells],
    job: Node,
    base_dir: str,
    faults: list[Fault],
    now: datetime | None,
    job_name: str,
    *,
    repeats: bool,
) -> tuple[list[BatchPoint], set[str]]:
    """Return the points with their jobs, and the keys that the program does not mention.

    `job_name`: the path of the job file as typed, or the name of a job that has none. `repeats`: True where a
    search may draw a point twice, which then counts once; otherwise the second is a fault. Raises
    JobFileError with the faults of invalid ones and `faults`.
    """
    runs_command = isinstance(job, MappingNode) and any(key.value == "command" for key, _ in job.value)
    own, found, not_mentioned = plain(job), dict[str, BatchPoint](), set[str]()
    numbers: dict[str, int] = {}  # in the file, counted from 1, by the job that a point makes
    job_file = job_name if PurePath(job_name).suffix in (".yaml", ".yml") else None
    for number, cells in enumerate(points, 1):
        values = {key: plain(node) for key, node in cells.items()}
        parameters = _for_the_program(cells) if runs_command else {}
        values |= parameters
        try:
            root = job
            for key, node in cells.items():
                if key not in parameters:
                    root = grafted(root, key, node)
            asked = load_node(root, base_dir, now)
            not_mentioned |= unmentioned(asked, parameters)
            spec = replace(with_parameters(asked, parameters), job_file=job_file)
            if spec.resources.gpu_memory_gb == "auto":
                faults.append(fault_at(job, "resources.gpu_memory_gb", _NO_AUTO))
        except SyntaxFault as error:
            faults.append(error.fault)
        except JobFaults as error:
            faults += error.faults
        else:
            point = BatchPoint(id=_id_of(own, values), values=values, spec_json=as_json(spec))
            first = numbers.setdefault(point.spec_json, number)
            if first != number and not repeats:
                faults.append(_repeated(cells, values, number, first))
            found.setdefault(point.id, point)
    if faults:
        raise _errors(faults)
    return list(found.values()), not_mentioned


def _beside(batch_file: str, job: str) -> str:
    """Return the path of the job file, which the batch file gives relative to its folder."""
    return posixpath.normpath(PurePath(batch_file).parent / job)


def _for_the_program(cells: Cells) -> dict[str, Any]:
    """Return the values whose keys are not keys of a job; `True` is text, which the program gets as it is."""
    return {
        key: node.value if node.tag == BOOL and not node.value.islower() else plain(node)
        for key, node in cells.items()
        if "." not in key and key not in _JOB_KEYS and kind_of(key) is None
    }


def _repeated(cells: Cells, values: Mapping[str, Any], number: int, first: int) -> Fault:
    key, node = next(iter(cells.items()))
    text = ", ".join(f"{name}={value}" for name, value in public_values(values).items())
    return fault_at(node, key, f"point {number} is the same as point {first} ({text}); give each point once")


def _id_of(job: Any, values: Mapping[str, Any]) -> str:
    """Return a hash of the job as it is written and of the point's values, in any order: 10 hex digits.

    Ignores the job's tags: a different tag does not make a different run.
    """
    if isinstance(job, dict):
        job = {key: value for key, value in job.items() if key != "tags"}
    return _short_digest(json.dumps({"job": job, "values": values}, sort_keys=True))


def _id_with_code(id_: str, spec: JobSpec) -> str:
    data = (file.sha256 or "" for file in spec.data if file.url is None)
    digests = "".join((spec.code_digest or "", *data))
    return _short_digest(f"{id_} {digests}") if digests else id_


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
