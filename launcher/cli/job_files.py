"""Jobs of commands: read from a file, from an example's name or from an earlier run, with warnings."""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from vastrun.launcher.api import jobs
from vastrun.launcher.app import DEFAULT_PROVIDER, App
from vastrun.launcher.cli.output import note, set_error_job_file
from vastrun.launcher.commands.chains import chain_of
from vastrun.launcher.commands.takeover import display_name
from vastrun.launcher.config import read_job
from vastrun.launcher.config.command import imports_of, parse_program, script_of
from vastrun.launcher.core import NOTHING, Offer, Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import tag_faults
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Provider

_WANDB_NAMES = frozenset({"WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED"})
_MAX_IGNORED = 3
"""Ignored files that a warning names."""


def read_job_file(path: Path, sets: tuple[str, ...], by: str | None = None) -> JobSpec:
    """Read the job in a file, or in the example of that name. `by`: the deadline that overrides its own.

    Raises JobFileError, and UsageError if the file cannot be read.
    """
    typed, path = path, jobs.file_or_example(path, note)
    set_error_job_file(path)
    return replace(_load(jobs.source_of(path), sets, by), job_file=str(typed))


def job_of(run: Run, sets: tuple[str, ...], by: str | None) -> JobSpec:
    """Return the job of a run as it was before its first attempt, with the overrides applied.

    Raises JobFileError; UsageError as `first_attempt_of`.
    """
    first = read_job(first_attempt_of(run).spec_json)
    source = replace(jobs.source_of(first), name=f"the job of {run.id}")
    return replace(_load(source, sets, by), job_file=first.job_file)


def first_attempt_of(run: Run) -> Run:
    """Return the oldest run of its chain.

    Raises UsageError where another computer read its job, which names folders and commands of that one.
    """
    app: App = click.get_current_context().obj
    oldest = chain_of(app.driver_ledger(), run)[0]
    if oldest.home != app.computer():
        raise UsageError(
            f"the job of {run.id} was read on {display_name(oldest.home)}: its folders are there",
            hint=f"vastrun launch JOB.yaml --from {run.id}",
        )
    return oldest


def _load(source: jobs.JobText, sets: tuple[str, ...], by: str | None) -> JobSpec:
    overrides = [*sets, *([f"limits.deadline='{by}'"] if by else [])]
    return jobs.load(source, overrides, now=click.get_current_context().obj.local_now())


def with_tags(spec: JobSpec, tags: tuple[str, ...]) -> JobSpec:
    """Return the job with further tags. Raises click.BadParameter if there are too many."""
    all_tags = tuple(dict.fromkeys((*spec.tags, *tags)))
    for _, fault in tag_faults(all_tags):
        raise click.BadParameter(fault, param_hint="--tag")
    return replace(spec, tags=all_tags)


def resolve_auto(app: App, spec: JobSpec) -> JobSpec:
    """Return the job with a number in place of `auto`, and print it. Raises JobValueError."""
    if spec.resources.gpu_memory_gb != "auto":
        return spec
    from vastrun.launcher.commands import estimate as auto

    spec, message = auto.resolve_auto(spec, app.estimator())
    note(message)
    return spec


def print_warnings(spec: JobSpec, market: Provider, offers: Sequence[Offer]) -> None:
    """Print warnings about valid values of the job that are probably mistakes."""
    for text in job_warnings(spec, offers, free=market.free, local=market.name == DEFAULT_PROVIDER):
        note(f"warning: {text}")


def job_warnings(spec: JobSpec, offers: Sequence[Offer], *, free: bool, local: bool) -> Iterator[str]:
    """Yield the warnings about a job. `offers`: what would be rented, best first; `free`: at no cost.

    `local`: on this computer, where a program finds the user's own logins.
    """
    wandb_programs = (name for name, tree in _programs(spec) if imports_of(tree).uses("wandb"))
    if not local and (program := next(wandb_programs, None)) and _WANDB_NAMES.isdisjoint(_variables(spec)):
        yield (
            f"{program} imports wandb, and the job has no W&B key: add secrets: WANDB_API_KEY, "
            "or env: {WANDB_MODE: offline} to record without one"
        )
    from vastrun.launcher.bundle.checkout import (  # slow to import
        code_tree,
        data_entry,
        ignored_data,
        secret_files,
    )
    from vastrun.launcher.bundle.outgoing import is_lfs_pointer

    withheld, pointers = list[str](), list[str]()
    if spec.code is not None:
        with suppress(UsageError, OSError, RuntimeError):  # the upload says why
            tree = code_tree(spec)
            is_secret = secret_files(spec)
            withheld = [name for name in tree.withheld if not is_secret(tree.root / name)]
            pointers = [file.name for file in tree.files if is_lfs_pointer(file)]
            for name in _named_programs(spec):
                tail = f"/{posixpath.normpath(name)}"  # a script may change its folder first
                if "$" in name or any(f"/{path}".endswith(tail) for path in tree.paths):
                    continue
                near = difflib.get_close_matches(name, tree.paths, n=1)
                if near or not spec.setup:  # it may make programs, hardly one with almost the same name
                    hint = f"; did you mean {near[0]}?" if near else ""
                    yield f"command: {name} is not among the files that are uploaded{hint}"
    ignored = "ignored by git, so not uploaded, and the code names {them}; "
    ignored += "if the program reads {them}, add data: [{paths}]"
    secret = "not uploaded, since {they} hold{s} credentials; hand them to the program with secrets, "
    secret += "or add {them} to code.include"
    unfetched = "git LFS has not fetched {them}: type git lfs pull"
    for paths, text in ((ignored_data(spec), ignored), (withheld, secret), (pointers, unfetched)):
        if paths:
            words = ("it", "it", "s") if len(paths) == 1 else ("them", "they", "")
            entries = ", ".join(data_entry(path, spec) for path in paths[:_MAX_IGNORED])
            entries += ", …" if paths[_MAX_IGNORED:] else ""
            sentence = text.format(**dict(zip(("them", "they", "s"), words, strict=True)), paths=entries)
            yield f"{listed_files(paths)}: {sentence}"
    if spec.resources.gpus == 0 and not free and offers and offers[0].gpus:
        yield (
            f"resources.gpus is 0, but this provider rents machines with GPUs only: {offers[0].gpus} x "
            f"{offers[0].gpu_name} will be paid for and not used"
        )


def listed_files(paths: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(paths) - _MAX_IGNORED} more" if len(paths) > _MAX_IGNORED else ""
    return f"{', '.join(map(one_line, paths[:_MAX_IGNORED]))}{more}"


def note_changed_code(app: App, subject: str, spec_json: str) -> None:
    """Tell the user once that what runs is not what is in the folder now."""
    if changed := app.packer(NOTHING).changed_code(read_job(spec_json)):
        note(f"{subject} runs the code as it was submitted; changed since: {listed_files(changed)}")


def _script(spec: JobSpec) -> str:
    command = spec.command or ()
    return script_of(command) or " ".join(command)


def _variables(spec: JobSpec) -> set[str]:
    """Return the names that the job sets in the program's environment, its script included."""
    exported = re.findall(r"\b(WANDB_\w+)=", _script(spec))
    return {*spec.env, *(secret.name for secret in spec.secrets), *exported}


def _named_programs(spec: JobSpec) -> list[str]:
    """Return the Python programs that the command names by a path in the code folder."""
    names = re.findall(r"(?<![^\s;&|'\"])[^\s;&|'\"]+\.py\b", _script(spec))
    return [name for name in names if not name.startswith(("/", "~", "-"))]


def _programs(spec: JobSpec) -> Iterator[tuple[str, ast.Module]]:
    """Yield the Python programs that the command names, where they can be read."""
    if spec.command is None or spec.code is None:
        return
    for name in _named_programs(spec):
        with suppress(UsageError):
            yield name, parse_program(Path(spec.code.path).expanduser() / name)
