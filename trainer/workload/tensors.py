"""Tensors: every one that is made is counted, from its first byte to its last. Real and fake ones alike."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vastrun.contract.workload import PeakBytes
from vastrun.trainer.telemetry.flops import flops_of

Kind = Literal["parameters", "gradients", "optimiser", "activations", "other"]


@dataclass
class _Storage:
    """The memory behind a tensor and its views."""

    kind: Kind
    nbytes: int


class _Pause:
    """What is made within is not counted. One serves many times."""

    on = False

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False


class TensorCount(TorchDispatchMode):
    """While it is open: the bytes of all tensors, at most at once; what operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic_bytes = 0.0
        self.operations = 0
        self.flops = 0
        self._kind: Kind = "other"
        self._storages: dict[weakref.ref[torch.UntypedStorage], _Storage] = {}
        self._now: Counter[Kind] = Counter()
        self.peak = self._present()
        self._resize = torch.UntypedStorage.resize_
        self._infer_shape = ShardingPropagator._propagate_tensor_meta_non_cached
        self._pause = _Pause()

    def __enter__(self) -> TensorCount:
        # FSDP2 frees gathered weights so, which is no operation on a tensor.
        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            self._note(storage)
            return result

        torch.UntypedStorage.resize_ = resize

        # The first time that an operation meets a spread tensor, DTensor asks a fake tensor of the size
        # that all ranks hold together for the shape of the result. No step holds that one.
        def infer_shape(propagator: ShardingPropagator, *arguments: Any) -> Any:
            with self._pause:
                return self._infer_shape(propagator, *arguments)

        ShardingPropagator._propagate_tensor_meta_non_cached = infer_shape
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize
        ShardingPropagator._propagate_tensor_meta_non_cached = self._infer_shape

    @contextmanager
    def making(self, kind: Kind) -> Iterator[None]:
        """Count what is made within as of that kind."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def forget_peak(self) -> None:
        """Begin anew with what is there now."""
        self.peak = self._present()

    def are(self, kind: Kind, tensors: Iterable[Tensor]) -> None:
        """Count these as of that kind from now on."""
        for tensor in tensors:
            plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            self._note(plain.untyped_storage(), kind)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # A tensor that is spread over the ranks first becomes operations on this rank's part.
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if self._pause.on:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for tensor in made:
            self._note(tensor.untyped_storage())
        if not getattr(func, "is_view", False):
            given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self.operations += 1
            self.flops += flops_of(func, args, kwargs, result)
            self.traffic_bytes += sum(
                leaf.nbytes for leaf in {id(leaf): leaf for leaf in made + given}.values()
            )
        return result

    def _note(self, storage: torch.UntypedStorage, kind: Kind | None = None) -> None:
        reference = weakref.ref(storage, self._gone)
        known = self._storages.get(reference)
        if known is None:
            known = self._storages[reference] = _Storage(kind or self._kind, 0)
        elif kind and kind != known.kind:
            self._now[known.kind] -= known.nbytes
            self._now[kind] += known.nbytes
            known.kind = kind
        size = storage.nbytes()
        self._now[known.kind] += size - known.nbytes
        known.nbytes = size
        if self._now.total() > self.peak.total:
            self.peak = self._present()

    def _present(self) -> PeakBytes:
        return PeakBytes(**{kind: self._now[kind] for kind in get_args(Kind)})

    def _gone(self, reference: weakref.ref[torch.UntypedStorage]) -> None:
        storage = self._storages.pop(reference)
        self._now[storage.kind] -= storage.nbytes
