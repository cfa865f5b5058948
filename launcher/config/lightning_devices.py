"""Lightning devices: the devices in a program's Trainer, which must match the ranks of its machine."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vastrun.launcher.config.program_index import Call, index_program
from vastrun.launcher.config.write_calls import uses_lightning

_CALLS = ("Trainer", "Fabric")


@dataclass(frozen=True, kw_only=True)
class LightningDevices:
    """The devices of a Trainer, where the program's text shows them."""

    count: int | None
    """Number of devices; None for all that it finds."""
    line: int
    text: str
    """Text in the program, like `devices="auto"`."""


def lightning_devices(text: str) -> LightningDevices | None:
    """Return the devices of the first Trainer; None without Lightning, or if only a run shows them.

    Raises SyntaxError, ValueError.
    """
    index = index_program({"": ast.parse(text)})
    if not uses_lightning(index.imports) or "transformers.Trainer" in index.imports:
        return None
    for call in index.calls:
        if call.last in _CALLS and (found := _devices(call)):
            return found
    return None


def _devices(call: Call) -> LightningDevices | None:
    value = call.argument(-1, "devices")
    if value is None:
        if any(word.arg is None for word in call.node.keywords):
            return None  # **options
        return LightningDevices(count=None, line=call.node.lineno, text="no devices=")
    shown = f"devices={ast.unparse(value)}"
    match value:
        case ast.Constant(value="auto" | "-1") | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            return LightningDevices(count=None, line=call.node.lineno, text=shown)
        case ast.Constant(value=int(count)) if not isinstance(value.value, bool):
            return LightningDevices(count=count, line=call.node.lineno, text=shown)
        case ast.Constant(value=str(digits)) if digits.isdecimal():
            return LightningDevices(count=int(digits), line=call.node.lineno, text=shown)
        case ast.List(elts=numbers):
            return LightningDevices(count=len(numbers), line=call.node.lineno, text=shown)
    return None
