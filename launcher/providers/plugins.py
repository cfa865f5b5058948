"""Provider plug-ins: packages that add a provider by an entry point of the group `vastrun.providers`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from vastrun.launcher.core.errors import UsageError, VastrunError

if TYPE_CHECKING:
    from vastrun.launcher.ports import Provider

GROUP = "vastrun.providers"
VERBS = ("search", "rent", "instances", "machine", "connect", "destroy")
FIELDS = ("name", "max_nodes", "shared", "list_lag_s", "free", "abilities")
"""Attributes of a provider that the launcher reads, in addition to its verbs; see docs/own-provider.md."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ProviderPlugin:
    """A provider that an installed package names; its module is imported on first use."""

    name: str
    package: str
    """Name and version of the package, as in `vastrun-ssh-machines 0.1.0`."""
    place: str
    """MODULE:CLASS."""

    def load(self) -> Any:
        """Import the class. Raises UsageError, which names the package and says what is wrong with it."""
        try:
            found = EntryPoint(name=self.name, value=self.place, group=GROUP).load()
        except (Exception, SystemExit) as error:  # whatever another package's module raises
            raise self.fault(f"cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(getattr(found, "of", None)):
            raise self.fault(f"{self.place} has no classmethod `of`, which makes the provider")
        if isinstance(found, type) and (lacking := _lacking(found, VERBS)):
            raise self.fault(f"it lacks {lacking}")
        return found

    def of(self, context: Any) -> Provider:
        """Make the provider. Raises VastrunError; UsageError where it cannot be made or lacks a part."""
        made_by = self.load()
        try:
            provider: Provider = made_by.of(context)
        except VastrunError:
            raise
        except (Exception, SystemExit) as error:
            raise self.fault(f"cannot be made: {type(error).__name__}: {error}") from error
        # Now, not at the first use: what is missing would otherwise be noticed while a machine is rented.
        if lacking := _lacking(provider, (*VERBS, *FIELDS)):
            raise self.fault(f"it lacks {lacking}")
        # The ledger stores the name: under another one no later launcher would find the machines.
        if provider.name != self.name:
            raise self.fault(f"its provider calls itself {provider.name!r}")
        return provider

    def fault(self, text: str) -> UsageError:
        """Return the error that names the package, and what a user can do."""
        distribution = self.package.partition(" ")[0]
        return UsageError(
            f"provider {self.name!r} of the package {self.package}: {text}",
            hint=f"update or reinstall {distribution}, or uninstall it; other providers work without it",
        )


def installed_plugins() -> Sequence[ProviderPlugin]:
    """Read the entry points of every installed package; imports none of their modules."""
    found = []
    for entry in entry_points(group=GROUP):
        if _NAME.fullmatch(entry.name):
            distribution = entry.dist
            package = f"{distribution.name} {distribution.version}" if distribution else "unknown"
            found.append(ProviderPlugin(name=entry.name, package=package, place=entry.value))
    return sorted(found, key=lambda plugin: (plugin.name, plugin.package))


def find_plugin(name: str, built_in: Iterable[str], plugins: Sequence[ProviderPlugin]) -> ProviderPlugin:
    """Return the plug-in of that name.

    Raises UsageError where no package has it, with the providers that there are, or where several have it.
    """
    found = [plugin for plugin in plugins if plugin.name == name]
    if not found:
        added = [f"{plugin.name} ({plugin.package})" for plugin in plugins if plugin.name not in built_in]
        raise UsageError(
            f"no provider is called {name!r}", hint=f"installed providers: {', '.join([*built_in, *added])}"
        )
    if len(found) > 1:
        packages = " and ".join(plugin.package for plugin in found)
        raise UsageError(
            f"several packages have a provider {name!r}: {packages}", hint="uninstall all but one of them"
        )
    return found[0]


def _lacking(provider: Any, parts: Sequence[str]) -> str:
    """The parts that a provider, or its class, does not have. Runs no property: one may ask a machine."""
    owner, own = (provider, {}) if isinstance(provider, type) else (type(provider), vars(provider))
    return ", ".join(part for part in parts if not hasattr(owner, part) and part not in own)
