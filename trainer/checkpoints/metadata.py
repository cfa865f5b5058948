"""Metadata: safely read the place of each tensor of a checkpoint from an untrusted pickle.

A pickle is a program, and this one may come from an untrusted machine. It builds stand-ins that are created
for each file, so that it can neither call nor change anything of torch; torch's classes are then built from
the stand-ins, value by value.
"""

import pickle
import struct
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from vastrun.contract.checkpoint_folder import DamagedError
from vastrun.trainer.checkpoints.contents import METADATA

_MAX_BYTES = 64 << 20
_MIN_BYTES, _BYTES_PER_BYTE = 8 << 20, 1 / 20
"""Bytes that metadata may always have, and in addition for each byte of tensors."""
_MIN_OPERATIONS, _OPERATIONS_PER_BYTE = 1_500_000, 1 / 100
"""The same limits for the operations of the pickle. A chunk of a tensor takes about 70, and each may take 100
bytes of memory: reading metadata takes at most 200 MB, plus the size of the tensors."""
_PICKLE_ERRORS = (
    *(pickle.UnpicklingError, EOFError, ImportError, AttributeError, LookupError, TypeError, ValueError),
    *(ArithmeticError, MemoryError, RecursionError, struct.error),
)
_TORCH = "torch.distributed.checkpoint.metadata"
_STORAGE = "torch.distributed.checkpoint.filesystem"


def read_metadata(checkpoint: Path) -> Metadata:
    """Read the checkpoint's metadata. Raises DamagedError, OSError."""
    tensors = sum(file.lstat().st_size for file in checkpoint.iterdir() if file.name != METADATA)
    max_bytes = min(_MAX_BYTES, int(_MIN_BYTES + tensors * _BYTES_PER_BYTE))
    with (checkpoint / METADATA).open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise DamagedError(f"{METADATA} in {checkpoint.name} is larger than {max_bytes} bytes")
    unpickler = _Unpickler(BytesIO(content), int(_MIN_OPERATIONS + tensors * _OPERATIONS_PER_BYTE))
    try:
        return _Builder(unpickler).metadata(unpickler.load())
    except _PICKLE_ERRORS as error:
        fault = f"{type(error).__name__}: {str(error)[:100]}"
        raise DamagedError(f"{METADATA} in {checkpoint.name} is malformed: {fault}") from error


def _stand_in_class() -> type:
    """Create a class whose instances store the state of the pickle's BUILD operation."""

    class StandIn:
        def __setstate__(self, state: Any) -> None:
            object.__setattr__(self, "state", state)

    return StandIn


_STAND_INS: Mapping[tuple[str, str], Callable[[], Any]] = {
    ("torch", "Size"): lambda: lambda values: tuple(values),
    ("torch.serialization", "_get_layout"): lambda: lambda name: name,
    (_TORCH, "_MEM_FORMAT_ENCODING"): lambda: lambda value: value,
    (_TORCH, "ChunkStorageMetadata"): _stand_in_class,
    (_TORCH, "Metadata"): _stand_in_class,
    (_TORCH, "MetadataIndex"): _stand_in_class,
    (_TORCH, "TensorProperties"): _stand_in_class,
    (_TORCH, "TensorStorageMetadata"): _stand_in_class,
    (_STORAGE, "_StorageInfo"): _stand_in_class,
}
"""Stand-ins of the classes in tensor metadata, besides dtypes."""


class _Unpickler(pickle._Unpickler):
    """Resolves only the names in `_STAND_INS`.

    Based on the Python implementation: the one in C takes gigabytes of memory for one number of a pickle.
    Each operation begins with a read, so that counting reads bounds memory and time.
    """

    def __init__(self, file: BytesIO, operations: int) -> None:
        self._left = operations
        super().__init__(file)
        self._made: dict[tuple[str, str], Any] = {}

    @property
    def read(self) -> Callable[[int], bytes]:
        return self._counted

    @read.setter
    def read(self, function: Callable[[int], bytes]) -> None:
        self._read = function

    def _counted(self, size: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise DamagedError(f"its {METADATA} has too many parts for its tensors")
        return self._read(size)

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) == ("builtins", "getattr"):
            return lambda kind, member: self._member(kind, member)
        if (module, name) not in _STAND_INS:
            raise DamagedError(f"its {METADATA} is malformed: it refers to {module}.{name}")
        return self.made(module, name)

    def made(self, module: str, name: str) -> Any:
        """Return the stand-in of this file for a name."""
        return self._made.setdefault((module, name), _STAND_INS[module, name]())

    def _member(self, kind: Any, member: Any) -> Any:
        """Return an enum member, which Python 3.11.0 to 3.11.3 write as getattr(kind, name)."""
        if kind is not self.made(_TORCH, "_MEM_FORMAT_ENCODING"):
            known = (name for (_, name), made in self._made.items() if made is kind)
            what = next(known, "something else")
            raise DamagedError(f"its {METADATA} is malformed: it refers to an attribute of {what}")
        return member


class _Builder:
    """Builds torch's metadata from the stand-ins of one file. Raises DamagedError for a wrong type."""

    def __init__(self, unpickler: _Unpickler) -> None:
        self._unpickler = unpickler

    def metadata(self, found: Any) -> Metadata:
        state = self._state(found, _TORCH, "Metadata")
        tensors, places = state.get("state_dict_metadata"), state.get("storage_data")
        if not isinstance(tensors, dict) or not isinstance(places, dict):
            raise DamagedError("its metadata list no tensors")
        return Metadata(
            state_dict_metadata={_text(name): self._tensor(name, tensor) for name, tensor in tensors.items()},
            storage_data={self._index(index): self._place(place) for index, place in places.items()},
        )

    def _tensor(self, name: str, found: Any) -> TensorStorageMetadata:
        try:
            state = self._state(found, _TORCH, "TensorStorageMetadata")
        except DamagedError:
            raise DamagedError(f"{name!r} is not a tensor") from None
        dtype, *_ = self._state(state.get("properties"), _TORCH, "TensorProperties", kind=tuple)
        if not isinstance(dtype, torch.dtype) or not isinstance(state.get("chunks"), list):
            raise DamagedError(f"{name!r} is not a tensor")
        size = _to_size(state.get("size"))
        found_chunks = [self._state(chunk, _TORCH, "ChunkStorageMetadata") for chunk in state["chunks"]]
        chunks = [
            ChunkStorageMetadata(offsets=_to_size(chunk.get("offsets")), sizes=_to_size(chunk.get("sizes")))
            for chunk in found_chunks
        ]
        # Where a chunk is missing, the tensor would silently keep its initial values.
        if sum(chunk.sizes.numel() for chunk in chunks) != size.numel():
            raise DamagedError(f"{name!r} is incomplete")
        return TensorStorageMetadata(properties=TensorProperties(dtype=dtype), size=size, chunks=chunks)

    def _index(self, found: Any) -> MetadataIndex:
        state = self._state(found, _TORCH, "MetadataIndex")
        offset, index = state.get("offset"), state.get("index")
        return MetadataIndex(
            _text(state.get("fqn")),
            None if offset is None else _to_size(offset),
            None if index is None else _count(index),
        )

    def _place(self, found: Any) -> _StorageInfo:
        state = self._state(found, _STORAGE, "_StorageInfo")
        name = _text(state.get("relative_path"))
        if Path(name).name != name or name in ("", ".", ".."):
            raise DamagedError(f"its metadata refer to {name!r}, which is not one of its files")
        if state.get("transform_descriptors"):
            raise DamagedError("its tensors have transforms, which are not supported")
        return _StorageInfo(name, _count(state.get("offset")), _count(state.get("length")))

    def _state(self, found: Any, module: str, name: str, kind: type = dict) -> Any:
        """Return the state of a stand-in."""
        if type(found) is not self._unpickler.made(module, name):
            raise DamagedError(f"its metadata contain something other than {name}")
        state = object.__getattribute__(found, "__dict__").get("state")
        if type(state) is not kind:
            raise DamagedError(f"its metadata contain an empty {name}")
        return state


def _text(value: Any) -> str:
    if type(value) is not str:
        raise DamagedError("its metadata contain an invalid name")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 2**53:
        raise DamagedError("its metadata contain an invalid number")
    return value


def _to_size(value: Any) -> torch.Size:
    if type(value) is not tuple or len(value) > 32:
        raise DamagedError("its metadata contain an invalid size")
    return torch.Size(map(_count, value))
