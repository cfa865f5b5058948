"""The registry of providers: each is imported on first use, and makes itself from what the launcher has.

A name that is not built in is looked for among the plug-ins: installed packages with an entry point of the
group `vastrun.providers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vastrun.launcher.core import Run
from vastrun.launcher.core.settings import LoadedSettings
from vastrun.launcher.ports import Clock, Provider, RateLimitStore, SecretStore

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.speed_history import SpeedHistory
    from vastrun.launcher.image.lock import Lock

PROVIDERS: Mapping[str, str] = {
    "local": "vastrun.launcher.providers.local:LocalProvider",
    "docker": "vastrun.launcher.providers.docker:DockerProvider",
    "vast": "vastrun.launcher.providers.vast:VastProvider",
    "slurm": "vastrun.launcher.providers.slurm:SlurmProvider",
    "pool": "vastrun.launcher.providers.pool:PoolProvider",
}
"""By name, where its class is. To add a built-in provider: a folder here, a line in this table, and one in
`tests/contract/markets.py`. A plug-in cannot replace one of these."""


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """What a provider may be made from."""

    environ: Mapping[str, str]
    """The environment: keys, addresses, GPUs that may be used."""
    state: Path
    """A folder that all launchers of this user share, and that stays."""
    clock: Clock
    uptime: Callable[[], float]
    """Seconds by a clock that all processes of this computer share, and that nobody sets."""
    python: str
    """What trains on this computer."""
    image_lock: Callable[[], Lock]
    """The images to choose from."""
    speeds: Callable[[str, JobSpec], SpeedHistory]
    """What earlier runs of a job have shown on the provider of that name."""
    runs: Callable[[], Sequence[Run]]
    """The open runs of the ledger: some of them hold machines."""
    provider: Callable[[str], Provider]
    """Another provider, by its name."""
    settings: Callable[[], LoadedSettings] = LoadedSettings
    """The user's."""
    rate_limits: Callable[[str], RateLimitStore] | None = None
    """Who calls when, of a team, by the key that they call with; None: this computer has its own."""
    secrets: SecretStore | None = None
    """Where the team's computers find the SSH keys of each other's runs; None: each has its own."""
    crowd: bool = False
    """Many runs of this process use it at once: what was asked lately may answer all of them."""


class ProviderClass(Protocol):
    """What a line of the registry names."""

    def of(self, context: ProviderContext) -> Provider:
        """Make the provider; nothing is asked of anybody yet. Raises AuthError, UsageError."""
        ...


def provider_class(name: str, registry: Mapping[str, str] = PROVIDERS) -> ProviderClass:
    """Import the provider of that name: a built-in one, else a plug-in.

    Raises UsageError, which lists the installed ones or says what is wrong with the plug-in.
    """
    if name not in registry:
        from vastrun.launcher.providers import plugins  # reads the metadata of every installed package

        return plugins.find_plugin(name, registry, plugins.installed_plugins()).load()
    module, _, attribute = registry[name].partition(":")
    found: ProviderClass = getattr(import_module(module), attribute)
    return found


def plugin_names() -> Sequence[str]:
    """List the names of providers that installed packages add; imports none of them."""
    from vastrun.launcher.providers.plugins import installed_plugins

    names = dict.fromkeys(plugin.name for plugin in installed_plugins())
    return tuple(name for name in names if name not in PROVIDERS)
