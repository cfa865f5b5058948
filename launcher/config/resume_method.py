"""Resume method: how a Python program gets the checkpoint to continue from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launcher.config.path_values import PathReader
from launcher.config.program_index import ProgramIndex, ProgramOption
from launcher.config.writing_calls import is_false
from launcher.config.written_files import Write

_PATH = r"(?:ckpt|checkpoint|snapshot|state|file|dir|path|training)s?"
_RESUME_OPTION = re.compile(
    rf"(?:auto_?)?(?:resume|restore|continue)(?:_?(?:from|{_PATH}))*|(?:load|from|restart)(?:_?(?:from|{_PATH}))+"
    r"|(?:ckpt|checkpoint|snapshot)_?(?:path|file)"
)
_FLAG = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE = 'os.environ.get("VASTRUN_RESUME")'
_PLAIN_LINE = (
    f"if path := {_VARIABLE}: state = torch.load(path)   # then load the model, the optimizer and the step"
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
    if "VASTRUN_RESUME" in index.texts:
        return ResumeMethod(note="The program itself reads VASTRUN_RESUME, the path of the checkpoint.")
    if "HfArgumentParser" in index.called and checkpoint.pattern.endswith("checkpoint-*"):
        return _by_option("--resume_from_checkpoint")
    if runs_lightning_command(index):
        return _by_option("--ckpt_path")
    options = [option for option in index.options if _is_resume(option)]
    options.sort(key=lambda option: "resume" not in option.name)
    with_path = next((option for option in options if not option.is_switch), None)
    if with_path is not None:
        return _by_option(with_path.flag)
    if options:
        flag = options[0].flag
        note = f"{flag} is added when there is a checkpoint, which is put back to its place before."
        return ResumeMethod(note=note, word=f"${{VASTRUN_RESUME:+{flag}}}")
    if _loads_by_itself(index, reader, checkpoint):
        return ResumeMethod(
            note="It is put back to its place before, and the program loads it when it is there."
        )
    note = "No option to continue was found. Add this line, unless the program looks for its newest file:"
    return ResumeMethod(note=note, line=_line(checkpoint))


def runs_lightning_command(index: ProgramIndex) -> bool:
    """Tell whether LightningCLI takes a command like `fit`."""
    return any(not is_false(call.argument(-1, "run")) for call in index.called.get("LightningCLI", []))


def _by_option(flag: str) -> ResumeMethod:
    note = f"On a fresh start {{resume:...}} is left out; else it is {flag} and the path of the checkpoint."
    return ResumeMethod(note=note, word=f"{{resume:{flag}}}")


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
