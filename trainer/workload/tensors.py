"""Tensor counter: tracks the memory of every tensor, real or fake, and the work of every operation."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vastrun.contract.workload import PeakBytes
from vastrun.trainer.telemetry.figures import flops_of

_DEVICE_QUERY = torch.ops.prim.device.default
"""Request for the device of a fake tensor: no operation, although it is dispatched as one, and twice as
frequent as operations."""
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
        self._total = 0
        self._phase = ""
        """Current phase; empty before the first one, when no peak is recorded."""
        self._peaks: dict[str, tuple[int, Counter[Kind]]] = {}
        """Peak of each phase: total bytes, and bytes by kind at that moment."""
        self._resize = torch.UntypedStorage.resize_
        self._infer_shape = ShardingPropagator._propagate_tensor_meta_non_cached
        self._pause = _Pause()

    def __enter__(self) -> Self:
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

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to wrap `__torch_dispatch__` for its compiler, which is not used here: it is called
        for each operation.
        """
        return False

    @contextmanager
    def counted_as(self, kind: Kind) -> Iterator[None]:
        """Count tensors that are created inside the block as `kind`."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def begin_phase(self, name: str) -> None:
        """Record the peak of what follows under that name; what was recorded under it before counts, too."""
        self._phase = name
        self._update_peak()

    def peaks(self) -> dict[str, PeakBytes]:
        return {
            name: PeakBytes(**{kind: now[kind] for kind in get_args(Kind)})
            for name, (_, now) in self._peaks.items()
        }

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
        if func is _DEVICE_QUERY:
            return _device_of(args[0])
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
        self._total += size - known.nbytes
        known.nbytes = size
        self._update_peak()

    def _update_peak(self) -> None:
        peak = self._peaks.get(self._phase)
        if self._phase and (peak is None or self._total > peak[0]):
            self._peaks[self._phase] = self._total, Counter(self._now)

    def _on_freed(self, reference: weakref.ref[torch.UntypedStorage]) -> None:
        storage = self._storages.pop(reference)
        self._now[storage.kind] -= storage.nbytes
        self._total -= storage.nbytes


def _device_of(tensor: Tensor) -> torch.device:
    """Return the device, without a detour through the mode of a fake tensor."""
    if isinstance(tensor, FakeTensor) and not tensor.fake_mode.in_kernel_invocation:
        return tensor.fake_device
    device: torch.device = _DEVICE_QUERY(tensor)
    return device
