"""The registry of providers: each is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from launcher.core.errors import UsageError
from launcher.ports import Provider

PROVIDERS: Mapping[str, str] = {
    "local": "launcher.providers.local:LocalProvider",
    "docker": "launcher.providers.docker:DockerProvider",
    "vast": "launcher.providers.vast:VastProvider",
}


def provider_class(name: str) -> Callable[..., Provider]:
    """What makes the provider of that name. Raises UsageError, which lists the known ones."""
    if name not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise UsageError(f"no provider is called {name!r}", hint=f"known providers: {known}")
    module, _, attribute = PROVIDERS[name].partition(":")
    made: Callable[..., Provider] = getattr(import_module(module), attribute)
    return made
