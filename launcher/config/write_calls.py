"""Write calls: calls of a Python program that write files, and the argument with the path."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from vastrun.launcher.config.program_index import Call, ProgramIndex

ALL_BELOW = "**/*"
RESULTS = "results"
"""The folder for a program that needs one as an option."""
HF_CHECKPOINTS = "checkpoint-*"
"""Folders of the Trainer's checkpoints, below its output_dir."""
_HF_OUTPUTS = "*.*"
"""The Trainer's other files there: its checkpoints are folders, with no dot in their names."""
_LIGHTNING_CHECKPOINTS = "lightning_logs/*/checkpoints/*.ckpt"
_IN_ANY_FOLDER = "**/checkpoints/*.ckpt"
"""Checkpoints of Lightning where a logger, or Hydra's configuration, names the folder."""
_OPTIMIZER = re.compile(r"optim", re.IGNORECASE)
_OF_A_MODEL = re.compile(
    r"model|module|state|optim|net|weight|param|ckpt|checkpoint|snapshot|ema", re.IGNORECASE
)
_DATA = re.compile(
    r"(?:.*_)?(?:data|dataset|samples?|inputs?|targets?|tensors?|features|eval|predictions?|results?|metrics)",
    re.IGNORECASE,
)
_HF_ARGUMENTS = re.compile(r"\w*TrainingArguments|(?:SFT|DPO|GRPO|PPO|KTO|ORPO|CPO|Reward)Config")
OUTPUT_FOLDER = re.compile(
    r"(?:out|output|outputs|save|result|results|log|logs|logging|work|exp|experiment|run|model|plot|figure)s?"
    r"[-_]?(?:dir|folder|directory)"
)
"""Names of options and keywords that say where to write."""
_MAX_EXPRESSIONS = 500


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """File or folder that a call writes."""

    node: ast.expr | None
    """The argument that names it; None: `below` is the whole path."""
    below: str = ""
    """A glob below the folder that the argument names."""
    is_checkpoint: bool = False
    by_name: bool = False
    """True: its name decides whether it is a checkpoint; weights alone are an output."""
    is_certain: bool = True
    """False: only a name suggests that the call writes there."""
    is_guess: bool = False
    """It is reported only if its path is known: not every call of this name writes files."""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A function that writes one file or folder."""

    place: int
    """Position of the argument with the path; -1 if it is only a keyword."""
    keywords: tuple[str, ...] = ()
    below: str = ""
    is_checkpoint: bool = False


_SHARED: Mapping[str, Writer] = {
    "save_pretrained": Writer(place=0, keywords=("save_directory",), below="*"),
    "save_state": Writer(place=0, keywords=("output_dir",), is_checkpoint=True),
    "FileSystemWriter": Writer(place=0, keywords=("path",), is_checkpoint=True),
    "savefig": Writer(place=0, keywords=("fname",)),
    "imsave": Writer(place=0, keywords=("fname", "uri")),
    "imwrite": Writer(place=0),
    "savetxt": Writer(place=0, keywords=("fname",)),
    "save_image": Writer(place=1, keywords=("fp",)),
    "save_file": Writer(place=1, keywords=("filename",)),
    "write_html": Writer(place=0, keywords=("file",)),
    "write_image": Writer(place=0, keywords=("file",)),
    "write_csv": Writer(place=0, keywords=("file",)),
    "write_parquet": Writer(place=0, keywords=("file",)),
    "copyfile": Writer(place=1, keywords=("dst",)),
    "copytree": Writer(place=1, keywords=("dst",), below=ALL_BELOW),
    **{
        f"to_{kind}": Writer(place=0, keywords=("path_or_buf", "path"))
        for kind in ("csv", "parquet", "json", "pickle", "feather", "hdf")
    },
}
"""Writers by the last part of the function's name."""
_DOTTED: Mapping[str, Writer] = {
    "torch.jit.save": Writer(place=1, keywords=("f",)),
    "torch.onnx.export": Writer(place=2, keywords=("f",)),
    "joblib.dump": Writer(place=1, keywords=("filename",)),
    "shutil.copy": Writer(place=1, keywords=("dst",)),
    "shutil.copy2": Writer(place=1, keywords=("dst",)),
    "fabric.save": Writer(place=0, keywords=("path",), is_checkpoint=True),
    **{
        f"{numpy}.{name}": Writer(place=0, keywords=("file",))
        for numpy in ("np", "numpy")
        for name in ("save", "savez", "savez_compressed")
    },
}
"""Writers by the whole name."""
_TORCH_SAVE = ("torch.save", "xm.save", "accelerator.save")


def targets_of(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    """Yield what a call writes, if it writes files."""
    found = list(_certain(index, call))
    yield from found
    if found:
        return
    for word in call.node.keywords:
        if word.arg and OUTPUT_FOLDER.fullmatch(word.arg) and call.last not in ("Namespace", "dict"):
            yield WriteTarget(node=word.value, below=ALL_BELOW, is_certain=False, is_guess=True)


def _certain(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    writer = _DOTTED.get(call.name) or _SHARED.get(call.last)
    if index.forwarding.get(call.last, call.name) in _TORCH_SAVE:
        yield from _torch_save(index, call)
    elif writer is not None:
        path = call.argument(writer.place, *writer.keywords)
        if path is not None:
            yield WriteTarget(node=path, below=writer.below, is_checkpoint=writer.is_checkpoint)
    elif _HF_ARGUMENTS.fullmatch(call.last):
        yield from _hugging_face(call)
    else:
        special = _SPECIAL.get(call.last)
        if special is not None:
            yield from special(index, call)


def _torch_save(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    saved, path = call.argument(0, "obj"), call.argument(1, "f")
    if path is not None:
        words = [] if saved is None else _words_of(index, call, saved)
        is_data = (isinstance(saved, ast.Dict) or any(map(_DATA.fullmatch, words))) and not any(
            map(_OF_A_MODEL.search, words)
        )
        # A training can continue from what holds an optimizer's state.
        has_optimizer = any(map(_OPTIMIZER.search, words))
        yield WriteTarget(node=path, is_checkpoint=has_optimizer, by_name=not is_data)


def _words_of(index: ProgramIndex, call: Call, saved: ast.expr) -> list[str]:
    """Return the names, attributes and strings of what is saved, and of what is assigned to it."""
    expressions = [saved]
    if isinstance(saved, ast.Name):
        expressions += index.assigned.get((call.scope, saved.id), [])
    nodes = chain.from_iterable(map(ast.walk, expressions))
    words = (
        getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
        for node in islice(nodes, _MAX_EXPRESSIONS)
    )
    return [word for word in words if isinstance(word, str)]


def _hugging_face(call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(0, "output_dir")
    if folder is None and any(word.arg is None for word in call.node.keywords):
        return  # **arguments
    name = "" if folder is not None else "trainer_output/"
    yield WriteTarget(node=folder, below=f"{name}{HF_CHECKPOINTS}", is_checkpoint=True)
    yield WriteTarget(node=folder, below=f"{name}{_HF_OUTPUTS}")


def _hugging_face_options(index: ProgramIndex, _call: Call) -> Iterator[WriteTarget]:
    """Yield what the Trainer writes to the folder that the command gives it."""
    if any(map(_HF_ARGUMENTS.fullmatch, index.names)):
        yield WriteTarget(node=None, below=f"{RESULTS}/{HF_CHECKPOINTS}", is_checkpoint=True)
        yield WriteTarget(node=None, below=f"{RESULTS}/{_HF_OUTPUTS}")


def _open(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    is_function = owner is None or (
        isinstance(owner, ast.Name) and owner.id in ("io", "gzip", "codecs", "bz2")
    )
    mode = call.argument(1 if is_function else 0, "mode")
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) & set("wax+"):
        yield WriteTarget(node=call.argument(0, "file") if is_function else owner)


def _path_method(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    if isinstance(call.node.func, ast.Attribute):
        yield WriteTarget(node=call.node.func.value)


def _h5(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    mode = call.argument(1, "mode")
    if call.name == "h5py.File" and isinstance(mode, ast.Constant) and str(mode.value)[:1] in "wax":
        yield WriteTarget(node=call.argument(0, "name"))


def _save(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    """Yield what `x.save(path)` writes: of torch.distributed.checkpoint, or of a picture or a model."""
    checkpoint = call.argument(-1, "checkpoint_id")
    if checkpoint is not None:
        yield WriteTarget(node=checkpoint, is_checkpoint=True)
    elif call.node.args and "." in call.name and call.last == "save" and len(call.node.args) == 1:
        yield WriteTarget(node=call.node.args[0], is_guess=True)


def _save_model(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    path = call.argument(1, "filename")
    if path is not None:  # safetensors: save_model(model, filename)
        yield WriteTarget(node=path)
    elif (folder := call.argument(0, "output_dir")) is not None and "." in call.name:
        yield WriteTarget(node=folder, below="*")


def _save_checkpoint(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    if call.last in index.functions.values():
        return  # of the program: what it does is found in it
    path = call.argument(0, "filepath", "save_dir")
    if path is not None:
        is_deepspeed = not index.imports.isdisjoint({"deepspeed"})
        yield WriteTarget(node=path, below="*" if is_deepspeed else "", is_checkpoint=True)


def _summary_writer(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(0, "log_dir", "logdir")
    yield WriteTarget(node=folder, below=ALL_BELOW if folder is not None else f"runs/{ALL_BELOW}")


def _project(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(-1, "project_dir")
    if folder is not None and any(not each.node.args for each in index.called.get("save_state", [])):
        yield WriteTarget(node=folder, below="checkpoints/checkpoint_*", is_checkpoint=True)


def _accelerate_loop(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(-1, "folder")
    below = "checkpoints/step_*" if folder is None else "step_*"
    yield WriteTarget(node=folder, below=below, is_checkpoint=True)


def _model_checkpoint(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(0, "dirpath")
    if folder is not None and uses_lightning(index.imports):
        yield WriteTarget(node=folder, below="*.ckpt", is_checkpoint=True)


def _lightning_trainer(index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    if not uses_lightning(index.imports) or is_false(call.argument(-1, "enable_checkpointing")):
        return
    if any(each.argument(0, "dirpath") is not None for each in index.called.get("ModelCheckpoint", [])):
        return
    loggers = [each for name in ("TensorBoardLogger", "CSVLogger") for each in index.called.get(name, [])]
    folder, below = call.argument(-1, "default_root_dir"), _LIGHTNING_CHECKPOINTS
    if is_false(call.argument(-1, "logger")):
        below = "checkpoints/*.ckpt"
    elif loggers:
        folder, below = loggers[0].argument(0, "save_dir"), _IN_ANY_FOLDER
    elif wandb := index.called.get("WandbLogger", []):
        project = wandb[0].argument(-1, "project")
        name = str(getattr(project, "value", "*"))
        folder, below = wandb[0].argument(-1, "save_dir"), f"{name}/*/checkpoints/*.ckpt"
    yield WriteTarget(node=folder, below=below, is_checkpoint=True)
    if below == _LIGHTNING_CHECKPOINTS:
        yield WriteTarget(node=folder, below="lightning_logs/*/*")


def _instantiate(index: ProgramIndex, _call: Call) -> Iterator[WriteTarget]:
    """Yield the checkpoints of a Lightning Trainer that Hydra makes from its configuration."""
    if uses_hydra_with_lightning(index) and not index.called.get("ModelCheckpoint"):
        yield WriteTarget(node=None, below=_IN_ANY_FOLDER, is_checkpoint=True)


def _lightning_logger(_index: ProgramIndex, call: Call) -> Iterator[WriteTarget]:
    folder = call.argument(0, "save_dir")
    if folder is not None:
        yield WriteTarget(node=folder, below="*/*/*")


_SPECIAL: Mapping[str, Callable[[ProgramIndex, Call], Iterator[WriteTarget]]] = {
    "AccelerateLoop": _accelerate_loop,
    "HfArgumentParser": _hugging_face_options,
    "TrlParser": _hugging_face_options,
    "open": _open,
    "write_text": _path_method,
    "write_bytes": _path_method,
    "File": _h5,
    "save": _save,
    "async_save": _save,
    "save_model": _save_model,
    "save_checkpoint": _save_checkpoint,
    "SummaryWriter": _summary_writer,
    "Accelerator": _project,
    "ProjectConfiguration": _project,
    "Trainer": _lightning_trainer,
    "ModelCheckpoint": _model_checkpoint,
    "instantiate": _instantiate,
    "LightningCLI": _lightning_trainer,
    "TensorBoardLogger": _lightning_logger,
    "CSVLogger": _lightning_logger,
}


def uses_lightning(imports: Collection[str]) -> bool:
    """Tell whether a program with these imports uses Lightning."""
    return any(name.partition(".")[0] in ("lightning", "pytorch_lightning") for name in imports)


def uses_hydra_with_lightning(index: ProgramIndex) -> bool:
    """Tell whether Hydra configures a program that trains with Lightning."""
    return any(name.partition(".")[0] == "hydra" for name in index.imports) and uses_lightning(index.imports)


def is_false(node: ast.expr | None) -> bool:
    """Tell whether an expression is the constant False."""
    return isinstance(node, ast.Constant) and node.value is False
