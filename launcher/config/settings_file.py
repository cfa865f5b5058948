"""The config file: parses YAML into Settings, with the line of each value, and reports all faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from vastrun.launcher.config.job_loader import checked
from vastrun.launcher.config.schema import bare, options
from vastrun.launcher.config.source import NULL, SyntaxFault, parse
from vastrun.launcher.config.yaml_reader import YamlReader
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.settings import LoadedSettings, Settings

KEYS = tuple(option.key for option in options(Settings) if not is_dataclass(bare(option.default)))
"""Dotted keys, as `vastrun config set` takes them."""


def load_settings(
    text: str, name: str, providers: Sequence[str], plugins: Callable[[], Sequence[str]] = tuple
) -> LoadedSettings:
    """Parse the text of the config file.

    `providers`: names of the built-in ones; `plugins`: lists those of packages, and is slow.
    """
    try:
        root = parse(text, name)
    except SyntaxFault as error:
        return LoadedSettings(faults=(str(error.fault),))
    reading = YamlReader(root, Settings)
    settings = checked(reading, Settings) or Settings()
    if settings.provider is not None and settings.provider not in providers:
        providers = (*providers, *plugins())
    if settings.provider is not None and settings.provider not in providers:
        near = get_close_matches(settings.provider, providers, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        reading.fault(
            ("provider",), f"expected one of {', '.join(providers)}, got {settings.provider!r}{meant}"
        )
        settings = dataclasses.replace(settings, provider=None)
    lines = {key: line for key, line in _lines(root, "") if key in KEYS}
    return LoadedSettings(
        settings=settings, faults=tuple(str(fault) for fault in sorted(reading.faults)), lines=lines
    )


def value_of(settings: Settings, key: str) -> Any:
    """Return the value of a dotted key; None where it is not set. Raises UsageError for an unknown key."""
    if key not in KEYS:
        near = get_close_matches(key, KEYS, n=1) or [k for k in KEYS if k.endswith(f".{key}")]
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{key}: unknown key{meant}", hint=f"the keys are {', '.join(KEYS)}")
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _lines(node: Node, prefix: str) -> Iterator[tuple[str, int]]:
    if not isinstance(node, MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if not (isinstance(value, ScalarNode) and value.tag == NULL):
            yield name, key.start_mark.line + 1
        yield from _lines(value, f"{name}.")
