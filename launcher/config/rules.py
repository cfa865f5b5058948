"""Rules: conditions between the fields of a job, beyond their types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from vastrun.contract.job import EXCLUDE_PREFIX, OUTPUTS_PREFIXES
from vastrun.launcher.config import program_of
from vastrun.launcher.config.command import program_of as words_of
from vastrun.launcher.config.command import script_of
from vastrun.launcher.config.data_rules import Conflict, data_conflicts
from vastrun.launcher.config.program_kinds import all_kinds, context_of, programs_of
from vastrun.launcher.config.source import KeyPath
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.core.job import Checkpoints, JobSpec
from vastrun.launcher.core.labels import tag_faults
from vastrun.launcher.core.secrets import check_address

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_EXPECTED = "expected up to 63 letters, digits, '-', '_' or '.', the first a letter or digit"
"""Expected form of the name of a job or a batch."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(
    r"(VASTRUN|LEASE|TORCHELASTIC)_.*|(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE"
    r"|MASTER_(ADDR|PORT)|CONTAINER_(ID|API_KEY)|PYTHON(UNBUFFERED|FAULTHANDLER)"
    r"|TORCH_NCCL_(ASYNC_ERROR_HANDLING|DUMP_ON_TIMEOUT|DEBUG_INFO_PIPE_FILE)|TORCH_FR_DUMP_TEMP_FILE"
)
_STARS_EXPECTED = "expected ** between slashes only"
_DOTENV = re.compile(r"\.env(\..+)?")
_RUNS_NOTEBOOK = re.compile(
    r"(?:^|[\s;&|(/])python[\d.]*(?:[ \t]+-[A-Za-z]+)*[ \t]+['\"]?([^\s'\";&|-][^\s'\";&|]*\.ipynb)\b"
)
"""A notebook as the program of Python; not as an argument of papermill or nbconvert."""


def conflicts(spec: JobSpec) -> Iterator[Conflict]:
    """Yield every conflict in the job."""
    for rule in (
        _names,
        _program,
        _success,
        _section,
        _machine,
        _secrets,
        _globs,
        _own_checkpoints,
        data_conflicts,
        _notify,
        _urls,
    ):
        yield from rule(spec)


def _names(spec: JobSpec) -> Iterator[Conflict]:
    if not NAME.fullmatch(spec.name):
        yield Conflict(("name",), f"{NAME_EXPECTED}, got {spec.name!r}")
    for number, text in tag_faults(spec.tags):
        yield Conflict(("tags",) if number is None else ("tags", number), text)
    for name in spec.env:
        if fault := _variable_fault(name):
            yield Conflict(("env", name), fault)


def _program(spec: JobSpec) -> Iterator[Conflict]:
    command, found = ("command",), programs_of(spec)
    if not found:
        kinds = all_kinds()
        choices = " or ".join(f"{kind.key} ({kind.title})" for kind in kinds)
        yield Conflict((kinds[0].key,), f"missing; give {choices}", tuple((kind.key,) for kind in kinds))
    for program in found[1:]:
        yield Conflict((program.key,), f"conflicts with {found[0].key}: give one of the two")
    if spec.command is not None and len(spec.command) == 1 and " " in spec.command[0].strip():
        yield Conflict(
            command,
            "a list is run without a shell, one word an item; write a script as a string, not as a list",
        )
    words = spec.command or ("",)
    found_notebook = _RUNS_NOTEBOOK.search(script_of(words) or " ".join(words))
    if found_notebook or words[0].endswith(".ipynb"):
        notebook = found_notebook[1] if found_notebook else words[0]
        yield Conflict(
            command,
            f"{notebook} is a notebook, which Python cannot run; make it a program: "
            f"jupyter nbconvert --to script {notebook}",
        )


def _success(spec: JobSpec) -> Iterator[Conflict]:
    success, command = ("success",), ("command",)
    if spec.command is not None and spec.success is None:
        how = "{steps: N} with beat(step) in its loop, {files: PATH} that it writes, or only {exit_code: 0}"
        yield Conflict(command, f"needs success, what proves that the program worked: {how}", (success,))
    if spec.success is None:
        return
    if spec.command is None:
        yield Conflict(
            success, f"works with command only: {program_of(spec).title} has its own proofs", (command,)
        )
    # An empty section proves nothing, and would make every program a success.
    if spec.success == type(spec.success)():
        yield Conflict(success, "expected at least one of files, log, steps, exit_code")
    try:
        re.compile(spec.success.log or "")
    except re.error as error:
        yield Conflict(
            ("success", "log"), f"expected a regular expression, got {spec.success.log!r}: {error}"
        )


def _section(spec: JobSpec) -> Iterator[Conflict]:
    """Yield what the kind of the job's program finds wrong with its section."""
    program = program_of(spec)
    for fault in program.validate(context_of(spec)):
        yield Conflict((program.key, *_path(fault.key)), fault.text, tuple(map(_path, fault.about)))


def _path(key: str) -> KeyPath:
    """Split `data[1].task` into its parts."""
    parts = re.findall(r"[^.\[\]]+", key)
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _machine(spec: JobSpec) -> Iterator[Conflict]:
    resources = spec.resources
    gpus: KeyPath = ("resources", "gpus")
    if spec.ranks is not None and 0 < resources.gpus < spec.ranks:
        yield Conflict(
            ("ranks",), f"expected at most one per GPU ({resources.gpus}), got {spec.ranks}", (gpus,)
        )
    if resources.gpus == 0:
        for key in ("gpu_names", "gpu_memory_gb", "cuda"):
            if getattr(resources, key):
                yield Conflict(("resources", key), "asks for a GPU, but resources.gpus is 0", (gpus,))
    if resources.nvlink and resources.gpus < 2:
        yield Conflict(
            ("resources", "nvlink"),
            f"connects several GPUs of a machine, but resources.gpus is {resources.gpus}",
            (gpus,),
        )
    if resources.gpu_memory_gb == "auto" and not program_of(spec).estimate_module:
        text = "auto works with the onboard trainer only: give a number"
        yield Conflict(("resources", "gpu_memory_gb"), text, (("command",),))
    try:
        ImageReference.of(spec.image or "any")
    except ValueError as error:
        yield Conflict(("image",), str(error))
    for i, region in enumerate(resources.regions):
        if not (region.isascii() and region.isalpha()):
            yield Conflict(("resources", "regions", i), f"expected a country code like US, got {region!r}")


def _secrets(spec: JobSpec) -> Iterator[Conflict]:
    seen: set[str] = set()
    for i, secret in enumerate(spec.secrets):
        path: KeyPath = ("secrets", i, "name")
        if fault := _variable_fault(secret.name):
            yield Conflict(path, fault)
        elif secret.name in spec.env:
            yield Conflict(path, f"{secret.name} is in env too: a secret belongs here only")
        elif secret.name in seen:
            yield Conflict(path, f"{secret.name} is given twice")
        seen.add(secret.name)
        given = [key for key in ("file", "env_file", "command") if getattr(secret, key) is not None]
        for key in given[1:]:
            yield Conflict(
                ("secrets", i, key), f"conflicts with {given[0]}: give one of file, env_file and command"
            )
        if secret.file is not None and _DOTENV.fullmatch(PurePosixPath(secret.file).name):
            text = f"takes the whole file; write env_file: {secret.file} for its line {secret.name}=..."
            yield Conflict(("secrets", i, "file"), text)
        if secret.folder is not None and secret.command is None:
            yield Conflict(("secrets", i, "folder"), "needs command, which is run there")
        try:
            if secret.command is not None and not words_of(secret.command):
                yield Conflict(
                    ("secrets", i, "command"), "expected a command that prints the value, got spaces"
                )
        except ValueError as error:
            yield Conflict(("secrets", i, "command"), f"is not a shell script: {str(error).lower()}")


def _variable_fault(name: str) -> str | None:
    if not _VARIABLE.fullmatch(name):
        return f"expected letters, digits and '_', the first no digit, got {name!r}"
    return f"{name} is set by vastrun itself" if _RESERVED.fullmatch(name) else None


def _globs(spec: JobSpec) -> Iterator[Conflict]:
    globs: dict[KeyPath, tuple[str, ...]] = {("outputs",): spec.outputs}
    if spec.success is not None:
        globs["success", "files"] = spec.success.files
    for path, patterns in globs.items():
        for i, pattern in enumerate(patterns):
            glob = pattern.removeprefix(EXCLUDE_PREFIX) if path == ("outputs",) else pattern
            parts = PurePosixPath(glob)
            if not parts.parts or parts.is_absolute() or ".." in parts.parts:
                yield Conflict((*path, i), f"expected a path inside the code folder, got {pattern!r}")
            elif _has_inner_stars(parts):
                yield Conflict((*path, i), f"{_STARS_EXPECTED}, got {pattern!r}")


def _has_inner_stars(pattern: PurePosixPath) -> bool:
    """Tell whether a glob has `**` within a name, which Python refuses on the machine until 3.13."""
    return any("**" in part and part != "**" for part in pattern.parts)


def _own_checkpoints(spec: JobSpec) -> Iterator[Conflict]:
    files, command = spec.checkpoints.files, spec.command
    path: KeyPath = ("checkpoints", "files")
    if files is None:
        if command is not None and any("{resume:" in word for word in command):
            text = "{resume:...} needs checkpoints: which of its files to continue from, as in checkpoints/*"
            yield Conflict(("command",), text, (path,))
        if spec.checkpoints.keep != Checkpoints().keep:
            yield Conflict(("checkpoints", "keep"), "needs checkpoints.files", (path,))
        if command is None or spec.nodes > 1:
            is_set = {
                ("checkpoints", "every_s"): spec.checkpoints.every_s != Checkpoints().every_s,
                ("limits", "snapshot_gb"): spec.limits.snapshot_gb is not None,
            }
            text = "is for command on one machine only"
            yield from (Conflict(key, text) for key in is_set if is_set[key])
        return
    if command is None:
        program = program_of(spec)
        text = f"is for command only: {program.title} saves on its own"
        yield Conflict(path, text, ((program.key,),))
    elif spec.nodes > 1:
        yield Conflict(path, f"needs one machine, got nodes: {spec.nodes}", (("nodes",),))
    named = next((name for name in OUTPUTS_PREFIXES if files.startswith(name)), "")
    parts = PurePosixPath(files.removeprefix(named))
    outside = parts.is_absolute() or ".." in parts.parts or str(parts).startswith(("$", "~"))
    if not parts.parts or outside:
        text = f"expected a path inside the code folder or $VASTRUN_OUTPUTS/, got {files!r}"
        yield Conflict(path, text)
    if _has_inner_stars(parts):
        yield Conflict(path, f"{_STARS_EXPECTED}, got {files!r}")


def _notify(spec: JobSpec) -> Iterator[Conflict]:
    for i, target in enumerate(spec.notify):
        path: KeyPath = ("notify", i)
        if (target.url is None) == (target.url_env is None):
            yield Conflict(path, "expected one of url and url_env")
        elif target.url is not None:
            try:
                check_address(target.url)
            except ValueError as error:
                yield Conflict((*path, "url"), str(error))
        elif target.url_env is not None and not _VARIABLE.fullmatch(target.url_env):
            yield Conflict((*path, "url_env"), f"expected the name of a variable, got {target.url_env!r}")


def _urls(spec: JobSpec) -> Iterator[Conflict]:
    for key, url in (("push", spec.checkpoints.push), ("start_from", spec.checkpoints.start_from)):
        if url is None or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^@\s]+", url):
            continue
        # Not shown: it may hold a key.
        yield Conflict(("checkpoints", key), "expected a URL without a key in it, like s3://bucket/path")
