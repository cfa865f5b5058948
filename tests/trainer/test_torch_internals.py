"""Every private name of torch's that the trainer uses is in the torch that is installed.

`make torch` runs this with the oldest and the newest torch that pyproject.toml allows. On a machine with any
other one, the preflight ends the run with the cause `setup` before these are imported
(tests/onstart/boot/test_preflight.py).
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from vastrun import trainer

PRIVATE = {
    "torch._dynamo.config",
    "torch._foreach_copy_",
    "torch._foreach_lerp_",
    "torch._foreach_mul_",
    "torch._foreach_norm",
    "torch._guards.detect_fake_mode",
    "torch._inductor.config",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch._subclasses.fake_tensor.unset_fake_temporarily",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.state_dict_saver._save_state_dict",
    "torch.distributed.tensor._sharding_prop.ShardingPropagator",
    "torch.ops.aten._fft_c2c",
    "torch.ops.aten._fft_c2r",
    "torch.ops.aten._fft_r2c",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward",
    "torch.testing._internal.distributed.fake_pg.FakeStore",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._pytree.tree_leaves",
}


def test_this_table_names_all_that_the_trainer_uses() -> None:
    files = Path(trainer.__file__).parent.rglob("*.py")
    assert {name for file in files for name in private_names(ast.parse(file.read_text()))} == PRIVATE


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_the_installed_torch_has_it(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if module.startswith("torch.ops"):
        module, attribute = "torch", name.removeprefix("torch.")
    try:
        found = import_module(name)
    except ModuleNotFoundError:
        found = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    assert found is not None


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported from torch, or reached as `torch.…`, and has a part that begins with `_`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "torch" and name.replace(".", "").isidentifier() and is_private(parts):
                yield name


def is_private(parts: list[str]) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in parts)
