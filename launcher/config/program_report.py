"""Program report: where a program writes and how it continues, and the matching lines of a job file."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.launcher.config.path_values import OUTPUTS, PathReader
from vastrun.launcher.config.program_index import ProgramIndex, ProgramOption, dotted, index_program
from vastrun.launcher.config.reached_code import reached_code
from vastrun.launcher.config.write_calls import (
    OUTPUT_FOLDER,
    RESULTS,
    is_false,
    uses_hydra_with_lightning,
)
from vastrun.launcher.config.written_files import CHECKPOINT_FOLDER, Write, WrittenFiles, written_files

_FLAG = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_.-]*")
_GPU_SWITCH = re.compile(r"(?:(?:use|enable|with|on)_?)?(?:cuda|gpus?|accel|accelerator)", re.IGNORECASE)
_SPAWNS = ("torch.multiprocessing.spawn", "multiprocessing.spawn", "mp.spawn", "spawn")
_CHECKPOINTS = "checkpoints"
_MAX_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class ProgramReport:
    """Facts about a program that its job file needs."""

    written: WrittenFiles = field(default_factory=WrittenFiles)
    resume: ResumeMethod | None = None
    """Way to continue; None if it saves nothing to continue from."""
    options: str = ""
    """Words of the command after the program's name."""
    required: tuple[str, ...] = ()
    """Options that the user must add."""
    gpu_option: str = ""
    """Words of the command without which the program trains on the CPU; empty: none was found."""
    local_rank_option: str = ""
    """Option by which the former torch.distributed.launch numbered the ranks; empty: the program has none."""
    spawn: str = ""
    """File and line at which the program starts its processes itself; empty: it was not seen to."""


def report_of(trees: Mapping[str, ast.Module]) -> ProgramReport:
    """Return the report of a program, which comes first, and of its modules, by path."""
    index = index_program(reached_code(trees))
    folders = {option.flag: _folder(option) for option in index.options if _needs_folder(option)}
    names = {option.name: folders[option.flag] for option in index.options if option.flag in folders}
    if "HfArgumentParser" in index.called and "TrainingArguments" in index.names:
        folders["--output_dir"] = names["output_dir"] = RESULTS
    reader = PathReader(index=index, option_values=names)
    written = written_files(index, reader)
    resume = resume_method(index, reader, written.checkpoint) if written.checkpoint else None
    gpu_option = _gpu_option(index.options)
    local_rank = _local_rank_option(index.options)
    words = [f"{flag} {folder}" for flag, folder in folders.items()]
    words[:0] = [
        *([gpu_option] if gpu_option else []),
        *([f"{local_rank} $LOCAL_RANK"] if local_rank else []),
    ]
    if runs_lightning_command(index):
        words.insert(0, "fit")
    return ProgramReport(
        written=written,
        resume=resume,
        options=" ".join([*words, *([resume.word] if resume and resume.word else [])]),
        required=_required(index, {*folders, local_rank}),
        gpu_option=gpu_option,
        local_rank_option=local_rank,
        spawn=_spawn(index),
    )


def _spawn(index: ProgramIndex) -> str:
    """Return where a program starts its ranks by torch's `mp.spawn`."""
    is_imported = "torch.multiprocessing" in index.imports
    names = _SPAWNS if is_imported else _SPAWNS[:1]
    calls = (call for call in index.called.get("spawn", []) if call.name in names)
    return next((f"{call.file}:{call.node.lineno}" for call in calls), "")


def _gpu_option(options: Sequence[ProgramOption]) -> str:
    """Return the option that moves a program to the GPU, where it trains on the CPU by default."""
    for option in options:
        if not _FLAG.fullmatch(option.flag):
            continue
        if option.turns_on and _GPU_SWITCH.fullmatch(option.name):
            return option.flag
        if (
            option.name == "device"
            and isinstance(option.default, ast.Constant)
            and option.default.value == "cpu"
        ):
            return f"{option.flag} cuda"
    return ""


def _local_rank_option(options: Sequence[ProgramOption]) -> str:
    found = (option.flag for option in options if option.name == "local_rank" and not option.is_switch)
    return next((flag for flag in found if _FLAG.fullmatch(flag)), "")


def _needs_folder(option: ProgramOption) -> bool:
    is_none = option.default is None or (
        isinstance(option.default, ast.Constant) and option.default.value in (None, "")
    )
    is_folder = OUTPUT_FOLDER.fullmatch(option.name) or CHECKPOINT_FOLDER.fullmatch(option.name)
    return bool(is_none and is_folder and not option.is_switch and _FLAG.fullmatch(option.flag))


def _folder(option: ProgramOption) -> str:
    return _CHECKPOINTS if CHECKPOINT_FOLDER.fullmatch(option.name) else RESULTS


def _required(index: ProgramIndex, set_flags: Collection[str]) -> tuple[str, ...]:
    flags = [option.flag for option in index.options if option.is_required and option.flag not in set_flags]
    if "HfArgumentParser" in index.called:
        flags += [f"--{name}" for name in index.required_fields]
    return tuple(dict.fromkeys(flag for flag in flags if re.fullmatch(r"[\w.-]+", flag)))


def command_notes(report: ProgramReport) -> Iterator[str]:
    """Yield comments for above the command."""
    if report.gpu_option:
        yield f"# Without {report.gpu_option} it seems to train on the CPU; leave it out without a GPU."
    if report.local_rank_option:
        yield f"# Each rank gets its number on the machine by {report.local_rank_option}."
    if report.resume is not None and report.resume.word:
        yield f"# {report.resume.note}"
    if report.required:
        more = ", ..." if len(report.required) > _MAX_NAMED else ""
        yield f"# Add the options that the program requires: {', '.join(report.required[:_MAX_NAMED])}{more}"


def proof_files(report: ProgramReport) -> str:
    """Return a glob of a file that proves that the program worked."""
    checkpoint = report.written.checkpoint
    known = [*report.written.inside, *([checkpoint.pattern] if checkpoint else [])]
    files = [glob for glob in known if "." in glob.rpartition("/")[2] and not glob.startswith("$")]
    return min(files, key=lambda glob: glob.count("*"), default="results/model.pt")


def file_lines(report: ProgramReport) -> Iterator[str]:
    """Yield the lines about checkpoints and outputs."""
    written = report.written
    yield from _checkpoint_lines(written, report.resume)
    yield f"# All that it writes in this folder or to {OUTPUTS} is downloaded, up to 5 GB (outputs_gb)."
    for write in written.outside:
        yield f"# Not downloaded: {write.pattern} ({_place(write)}). Write to {OUTPUTS} instead."


def _checkpoint_lines(written: WrittenFiles, resume: ResumeMethod | None) -> Iterator[str]:
    checkpoint = written.checkpoint
    if checkpoint is None or resume is None:
        if written.unknown:
            yield "# Only a run shows where these write. If one saves a state to continue from, name it:"
            yield from (f"#   {write.by} in {_place(write)}" for write in written.unknown[:_MAX_NAMED])
        else:
            yield "# The program was not seen to save a state to continue from. Once it does:"
        yield "# checkpoints: checkpoints/*   # kept while it runs; `command: … {resume:--resume}` continues"
        yield ""
        return
    by = (
        f"{checkpoint.by} in {_place(checkpoint)}" if checkpoint.is_certain else f"its option {checkpoint.by}"
    )
    yield f"# What it continues from (found: {by}): kept and downloaded while it runs."
    if not resume.word:
        yield f"# {resume.note}"
    if resume.line:
        yield f"#   {resume.line}"
    yield f"checkpoints: {quoted(checkpoint.pattern)}"
    yield "# retry: {lost: 2, preempted: 2, host: 1}   # continue on another machine when one is lost"
    yield ""


def _place(write: Write) -> str:
    return f"{write.file}:{write.line}"


def quoted(text: str) -> str:
    """Return the text as YAML reads it back as this string."""
    # What could be read as a number, a word of YAML's own or a mapping is quoted.
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9 _./'>=<*-]*[A-Za-z0-9_./'*-]", text)
    words = ("true", "false", "null")
    return text if plain and text.lower() not in words else json.dumps(text, ensure_ascii=False)


_PATH = r"(?:ckpt|checkpoint|snapshot|state|file|dir|path|training)s?"
_RESUME_OPTION = re.compile(
    rf"(?:auto_?)?(?:resume|restore|continue)(?:_?(?:from|{_PATH}))*|(?:load|from|restart)(?:_?(?:from|{_PATH}))+"
    rf"|(?:ckpt|checkpoint|snapshot)_?(?:path|file)|{_PATH}_?(?:to|for)_?(?:resume|load|restore|continue)"
)
_RESUME_SWITCHES = ("resume", "restore", "continue", "resume_training", "continue_training")
"""Switches without which a program with a path to continue from does not look at it."""
_READERS = frozenset(("resume_path", "AccelerateLoop"))
"""Names of `vastrun.integrations` that read VASTRUN_RESUME."""
_CONFIGURATOR = "configurator.py"
"""nanoGPT and programs made from it execute this file: each of their global variables is an option."""
_VARIABLE = 'os.environ.get("VASTRUN_RESUME")'
_PLAIN_LINE = (
    f"if path := {_VARIABLE}: state = torch.load(path, weights_only=True)"
    "   # then load the model, the optimizer and the step"
)
_LINES = {
    "save_state": f"if path := {_VARIABLE}: accelerator.load_state(path)",
    "async_save": f"if path := {_VARIABLE}: dcp.load(state, checkpoint_id=path)",
    "FileSystemWriter": f"if path := {_VARIABLE}: dcp.load(state, checkpoint_id=path)",
    "ModelCheckpoint": f"trainer.fit(model, ckpt_path={_VARIABLE} or None)",
    "LightningCLI": f"cli.trainer.fit(cli.model, ckpt_path={_VARIABLE} or None)",
    "Trainer": f"trainer.fit(model, ckpt_path={_VARIABLE} or None)",
}
"""The line that a program needs, by what writes its checkpoints."""
_HF_LINE = f"trainer.train(resume_from_checkpoint={_VARIABLE} or None)"


@dataclass(frozen=True, kw_only=True)
class ResumeMethod:
    """Way in which a program continues from a checkpoint."""

    note: str
    """A comment for the job file."""
    word: str = ""
    """Word that the command needs for it."""
    line: str = ""
    """The line that the program lacks; empty: none."""


def resume_method(index: ProgramIndex, reader: PathReader, checkpoint: Write) -> ResumeMethod:
    """Return how the program continues from this checkpoint."""
    if "VASTRUN_RESUME" in index.texts or not _READERS.isdisjoint(index.called):
        return ResumeMethod(note="The program itself reads VASTRUN_RESUME, the path of the checkpoint.")
    if "HfArgumentParser" in index.called and checkpoint.pattern.endswith("checkpoint-*"):
        return _by_option("--resume_from_checkpoint")
    if runs_lightning_command(index):
        return _by_option("--ckpt_path")
    if uses_hydra_with_lightning(index) and re.fullmatch(r"[\w.]+", key := _hydra_key(index)):
        return _by_hydra(key)
    options = [option for option in index.options if _is_resume(option)]
    options.sort(key=lambda option: "resume" not in option.name)
    with_path = next((option for option in options if not option.is_switch), None)
    if with_path is not None:
        switches = (option for option in options if option.turns_on and option.name in _RESUME_SWITCHES)
        return _by_option(with_path.flag, next((option.flag for option in switches), ""))
    if options:
        return _by_switch(options[0].flag)
    if _CONFIGURATOR in index.texts and "init_from" in index.globals and "resume" in index.texts:
        return _by_switch("--init_from=resume")
    if _loads_by_itself(index, reader, checkpoint):
        return ResumeMethod(
            note="The checkpoint is restored to its path first, and the program loads it if it is there."
        )
    note = "No option to continue was found. Add this line, unless the program looks for its newest file:"
    return ResumeMethod(note=note, line=_line(checkpoint))


def runs_lightning_command(index: ProgramIndex) -> bool:
    """Tell whether LightningCLI takes a command like `fit`."""
    return any(not is_false(call.argument(-1, "run")) for call in index.called.get("LightningCLI", []))


def _hydra_key(index: ProgramIndex) -> str:
    """Return the key of Hydra's configuration whose value `trainer.fit` continues from; empty: none does."""
    for call in index.called.get("fit", []):
        match call.argument(-1, "ckpt_path"):
            case ast.Attribute() as value:
                return dotted(value).partition(".")[2]
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return key
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
                return key
    return ""


def _by_hydra(key: str) -> ResumeMethod:
    # Hydra reads quotes, too: Lightning's file names contain `=`.
    return ResumeMethod(
        note=f"{key}= and the path of the checkpoint are added if there is one.",
        word=f"${{VASTRUN_RESUME:+{key}=\"'$VASTRUN_RESUME'\"}}",
    )


def _by_option(flag: str, switch: str = "") -> ResumeMethod:
    note = f"On a fresh start {{resume:...}} is left out; else it is {flag} and the path of the checkpoint."
    word = f"{{resume:{flag}}}"
    return ResumeMethod(note=note, word=f"${{VASTRUN_RESUME:+{switch}}} {word}" if switch else word)


def _by_switch(flag: str) -> ResumeMethod:
    note = f"{flag} is added if there is a checkpoint, which is restored to its path first."
    return ResumeMethod(note=note, word=f"${{VASTRUN_RESUME:+{flag}}}")


def _is_resume(option: ProgramOption) -> bool:
    return bool(_RESUME_OPTION.fullmatch(option.name.lower()) and _FLAG.fullmatch(option.flag))


def _loads_by_itself(index: ProgramIndex, reader: PathReader, checkpoint: Write) -> bool:
    """Tell whether it looks for the very file that it saves, and loads it."""
    looked_for = [call for name in ("exists", "isfile", "is_file") for call in index.called.get(name, [])]
    for call in looked_for:
        owner = getattr(call.node.func, "value", None)
        path = call.argument(0) or owner
        if checkpoint.pattern in reader.globs(path, call.scope):
            return any(
                checkpoint.pattern in reader.globs(load.argument(0, "f"), load.scope)
                for load in index.called.get("load", [])
            )
    return False


def _line(checkpoint: Write) -> str:
    last = checkpoint.by.rpartition(".")[2]
    if checkpoint.pattern.endswith("checkpoint-*"):
        return _HF_LINE
    if checkpoint.by.rpartition(".")[0] in ("dcp", "DCP", "dist_cp", "torch.distributed.checkpoint"):
        return _LINES["async_save"]
    return _LINES.get(last, _PLAIN_LINE)
