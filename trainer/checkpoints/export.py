"""Export: write the tensors of a checkpoint to one file.

`python -m vastrun.trainer.checkpoints.export CHECKPOINTS FILE` exports the weights, by the unwrapped model's
names: their average where the training has one. No code of the checkpoint is run: it may come from an
untrusted machine.
"""

import argparse
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from vastrun.contract.checkpoint_folder import (
    DamagedError,
    name_of,
    newest_first,
    verify,
)
from vastrun.trainer.checkpoints.contents import EMA, MODEL, TrainerState
from vastrun.trainer.checkpoints.reader import CheckpointReader, read_tensors, state_of
from vastrun.trainer.checkpoints.scored_folder import best_of
from vastrun.trainer.models.weights import complex_tensors

_READ_ERRORS = (DamagedError, CheckpointException, pickle.UnpicklingError, OSError, ValueError, RuntimeError)


def parse_checkpoint_name(text: str) -> str:
    """Parse a checkpoint of a command line: latest, best or a step. Raises argparse.ArgumentTypeError."""
    if text not in ("latest", "best") and not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected latest, best, or a step, got {text}")
    return text


@dataclass(frozen=True, kw_only=True)
class ExportSummary:
    """The summary of an export, printed as JSON."""

    checkpoint: str
    step: int
    tensors: int
    bytes: int
    averaged: bool
    """True when the weights are the training's running average."""


def main(arguments: Sequence[str]) -> int:
    """Export a checkpoint. Returns the exit status: 0, 1 for a failure, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m vastrun.trainer.checkpoints.export", description=__doc__)
    parser.add_argument("checkpoints", type=Path, help="the folder of the checkpoints")
    parser.add_argument("file", type=_file, help="the output file: .pt or .safetensors")
    parser.add_argument(
        "--checkpoint", type=parse_checkpoint_name, default="latest", help="latest, best, or a step"
    )
    parser.add_argument("--all", action="store_true", help="the optimiser's state, too")
    options = parser.parse_args(arguments)
    try:
        exported = export(options.checkpoints, options.file, options.checkpoint, everything=options.all)
    except _READ_ERRORS as error:
        print(f"export: {_reason(error)}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(exported)))
    return 0


def export(
    checkpoints: Path, file: Path, selected: str = "latest", *, everything: bool = False
) -> ExportSummary:
    """Write the `latest` intact checkpoint, the `best`, or that of a step, to `file`.

    `everything`: include the optimiser's state, with the names of the checkpoint. Raises DamagedError,
    OSError, and torch's errors for a damaged file.
    """
    checkpoint = _resolve(checkpoints, selected)
    state, saved = state_of(checkpoint), _tensors_of(checkpoint, everything=everything)
    tensors = saved if everything else _weights(saved)
    handle, part = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(handle)
    try:
        _WRITERS[file.suffix](Path(part), tensors, state)
        Path(part).chmod(0o644)
        Path(part).replace(file)
    finally:
        with suppress(FileNotFoundError):
            Path(part).unlink()
    return ExportSummary(
        checkpoint=checkpoint.name,
        step=state.step,
        tensors=len(tensors),
        bytes=file.stat().st_size,
        averaged=not everything and any(name.startswith(EMA) for name in saved),
    )


def _resolve(checkpoints: Path, selected: str) -> Path:
    """Return the verified checkpoint of a name: latest, best or a step."""
    if selected == "latest":
        faults = []
        for checkpoint in newest_first(checkpoints):
            try:
                verify(checkpoint)
                return checkpoint
            except DamagedError as error:
                faults.append(str(error))
        raise DamagedError("; ".join(faults) or f"there is no checkpoint in {checkpoints}")
    best = best_of(checkpoints) if selected == "best" else None
    if selected == "best" and best is None:
        raise DamagedError(f"{checkpoints} has no best checkpoint: the job sets keep_best")
    chosen = checkpoints / (best.path if best else name_of(int(selected)))
    verify(chosen)
    return chosen


def _tensors_of(checkpoint: Path, *, everything: bool) -> dict[str, Tensor]:
    saved = CheckpointReader(checkpoint).metadata.state_dict_metadata
    selected = {name: saved[name] for name in saved if everything or name.startswith((MODEL, EMA))}
    if not selected:
        raise DamagedError(f"{checkpoint.name} has no weights")
    # Torch allocates the sizes in the metadata before it reads: limit them to the size on the disk.
    here = sum(path.stat().st_size for path in checkpoint.iterdir())
    if sum(of.size.numel() * of.properties.dtype.itemsize for of in selected.values()) > here:
        raise DamagedError(f"{checkpoint.name} lists more than its files contain")
    tensors = {name: torch.empty(of.size, dtype=of.properties.dtype) for name, of in selected.items()}
    read_tensors(checkpoint, tensors)
    return tensors


def _weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by the model's names. Tensors without an average (buffers) have their last values."""
    bare = {name.removeprefix(MODEL): tensor for name, tensor in tensors.items() if name.startswith(MODEL)}
    averages = {name.removeprefix(EMA): tensor for name, tensor in tensors.items() if name.startswith(EMA)}
    return complex_tensors(bare | averages)


def _write_safetensors(file: Path, tensors: Mapping[str, Tensor], state: TrainerState) -> None:
    from safetensors.torch import save_file  # not needed on a box

    about = {"format": "pt", "step": str(state.step), "config": json.dumps(state.config)}
    save_file(dict(tensors), file, metadata=about)


_WRITERS: Mapping[str, Callable[[Path, Mapping[str, Tensor], TrainerState], None]] = {
    ".pt": lambda file, tensors, _: torch.save(dict(tensors), file),
    ".safetensors": _write_safetensors,
}


def _reason(error: BaseException) -> str:
    """Return the reason in one line. Torch wraps a reader's error with its whole stack."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return " ".join(f"{error}".split())[:500] or type(error).__name__


def _file(text: str) -> Path:
    if Path(text).suffix not in _WRITERS:
        raise argparse.ArgumentTypeError(f"expected a name that ends in {' or '.join(_WRITERS)}, got {text}")
    return Path(text)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
