"""Tensor counter: tracks the memory of every tensor, real or fake, and the work of every operation."""

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
    """Memory behind a tensor and its views."""

    kind: Kind
    nbytes: int


class _Pause:
    """Reusable context in which nothing is counted."""

    is_on = False

    def __enter__(self) -> None:
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.is_on = False


class TensorCounter(TorchDispatchMode):
    """Context that counts the peak bytes of all tensors, and the FLOPs and traffic of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic_bytes = 0.0
        self.operations = 0
        self.flops = 0
        self._kind: Kind = "other"
        self._storages: dict[weakref.ref[torch.UntypedStorage], _Storage] = {}
        self._now: Counter[Kind] = Counter()
        self.peak = self._snapshot()
        self._resize = torch.UntypedStorage.resize_
        self._infer_shape = ShardingPropagator._propagate_tensor_meta_non_cached
        self._pause = _Pause()

    def __enter__(self) -> TensorCounter:
        # FSDP2 frees gathered weights this way, which is no operation on a tensor.
        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            self._record(storage)
            return result

        torch.UntypedStorage.resize_ = resize

        # The first time an operation gets a sharded tensor, DTensor infers the result's shape with a fake
        # tensor of the global size. No training step holds that tensor.
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
    def counted_as(self, kind: Kind) -> Iterator[None]:
        """Count tensors that are created inside the block as `kind`."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def reset_peak(self) -> None:
        """Reset the peak to the current memory."""
        self.peak = self._snapshot()

    def recount_as(self, kind: Kind, tensors: Iterable[Tensor]) -> None:
        """Count these tensors as `kind` from now on."""
        for tensor in tensors:
            plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            self._record(plain.untyped_storage(), kind)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # DTensor first turns an operation on a sharded tensor into operations on this rank's shard.
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if self._pause.is_on:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for tensor in outputs:
            self._record(tensor.untyped_storage())
        if not getattr(func, "is_view", False):
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self.operations += 1
            self.flops += flops_of(func, args, kwargs, result)
            self.traffic_bytes += sum(
                leaf.nbytes for leaf in {id(leaf): leaf for leaf in outputs + inputs}.values()
            )
        return result

    def _record(self, storage: torch.UntypedStorage, kind: Kind | None = None) -> None:
        reference = weakref.ref(storage, self._on_freed)
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
            self.peak = self._snapshot()

    def _snapshot(self) -> PeakBytes:
        return PeakBytes(**{kind: self._now[kind] for kind in get_args(Kind)})

    def _on_freed(self, reference: weakref.ref[torch.UntypedStorage]) -> None:
        storage = self._storages.pop(reference)
        self._now[storage.kind] -= storage.nbytes
