"""Options of the launcher, as `hydra.launcher.NAME`."""

from dataclasses import dataclass
from typing import Optional

from hydra.core.config_store import ConfigStore


@dataclass
class VastrunLauncherConf:
    """Options, with their defaults."""

    _target_: str = "hydra_plugins.vastrun_launcher.launcher.VastrunLauncher"
    provider: str = "local"
    usd: Optional[float] = None  # noqa: UP045
    """Budget of all runs in USD."""
    parallel: int = 4
    """Max. concurrent runs."""
    batch: Optional[str] = None  # noqa: UP045
    """Name of the batch; None: that of the program."""
    metric: str = "loss"
    goal: str = "min"
    code: Optional[str] = None  # noqa: UP045
    """Folder to upload; None: that of the program."""
    wait: bool = True
    """Wait for the batch; False: return once it is started."""
    job: Optional[str] = None  # noqa: UP045
    """Job file, whose command is replaced; None: `job.yaml` beside the program, if there is one."""


def register() -> None:
    """Offer these options as `hydra/launcher=vastrun`."""
    ConfigStore.instance().store(
        group="hydra/launcher", name="vastrun", node=VastrunLauncherConf, provider="vastrun_launcher"
    )
