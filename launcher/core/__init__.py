"""The core types: jobs, offers, machines, runs and their ends. Pure data."""

from vastrun.launcher.core.boxes import *  # noqa: F403
from vastrun.launcher.core.labels import *  # noqa: F403
from vastrun.launcher.core.left_out import *  # noqa: F403
from vastrun.launcher.core.market import *  # noqa: F403
from vastrun.launcher.core.phases import *  # noqa: F403
from vastrun.launcher.core.runs import *  # noqa: F403
from vastrun.launcher.core.verdict import *  # noqa: F403
