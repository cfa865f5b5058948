"""Registry of providers: each is imported on first use and built from a ProviderContext.

Other names are looked up among the plug-ins: installed packages with an entry point in the group
`vastrun.providers`.
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
    from vastrun.launcher.decisions.history import SpeedHistory
    from vastrun.launcher.image.lock import Lock

PROVIDERS: Mapping[str, str] = {
    "local": "vastrun.launcher.providers.local:LocalProvider",
    "docker": "vastrun.launcher.providers.docker:DockerProvider",
    "vast": "vastrun.launcher.providers.vast:VastProvider",
    "slurm": "vastrun.launcher.providers.slurm:SlurmProvider",
    "pool": "vastrun.launcher.pool.provider:PoolProvider",
}
"""Module and class of each built-in provider by name. To add one: a folder here, a line in this table, and
one in `tests/contract/markets.py`. A plug-in cannot replace one of these."""
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("LD_LIBRARY_PATH", "CUDA_HOME"),
)
"""Variables that a box inherits; all others may hold secrets."""


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """Dependencies and settings from which a provider is built."""

    environ: Mapping[str, str]
    """Environment variables: keys, addresses, visible GPUs."""
    state: Path
    """Persistent folder that all launchers of this user share."""
    clock: Clock
    uptime: Callable[[], float]
    """Seconds by a monotonic clock that all processes of this computer share."""
    python: str
    """Interpreter that trains on this computer."""
    image_lock: Callable[[], Lock]
    """Returns the images to choose from."""
    speeds: Callable[[str, JobSpec], SpeedHistory]
    """Returns the speeds of a job's earlier runs on the provider of that name."""
    runs: Callable[[], Sequence[Run]]
    """Returns the open runs of the ledger with their further nodes; some hold machines."""
    provider: Callable[[str], Provider]
    """Returns another provider by its name."""
    settings: Callable[[], LoadedSettings] = LoadedSettings
    """Returns the user's settings."""
    rate_limits: Callable[[str], RateLimitStore] | None = None
    """Returns the team's rate limits of an API key; None: this computer has its own."""
    secrets: SecretStore | None = None
    """Store through which the team's computers share their runs' SSH keys; None: each has its own."""
    many_runs: bool = False
    """True when many runs of this process share the provider: lists may come from a short cache."""
    report_wait: Callable[[str, str, float], None] = lambda _provider, _call, _seconds: None
    """Receives the provider, the kind of each call, and the seconds that it waited for a rate limit."""


class ProviderClass(Protocol):
    """Class named in the registry."""

    def of(self, context: ProviderContext) -> Provider:
        """Build the provider without any request. Raises AuthError, UsageError."""


def provider_class(name: str, registry: Mapping[str, str] = PROVIDERS) -> ProviderClass:
    """Import the provider of that name: a built-in one, else a plug-in.

    Raises UsageError with the installed names, or with the fault of the plug-in.
    """
    if name not in registry:
        from vastrun.launcher.providers import plugins  # reads the metadata of every installed package

        plugin = plugins.find_plugin(name, registry, plugins.installed_plugins())
        plugin.load()
        return plugin
    module, _, attribute = registry[name].partition(":")
    found: ProviderClass = getattr(import_module(module), attribute)
    return found


def plugin_names() -> Sequence[str]:
    """List the names of providers that installed packages add; imports none of them."""
    from vastrun.launcher.providers.plugins import installed_plugins

    names = dict.fromkeys(plugin.name for plugin in installed_plugins())
    return tuple(name for name in names if name not in PROVIDERS)


def inherited_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a box inherits from this computer's environment."""
    return {name: environ[name] for name in _INHERITED if name in environ}
