"""The core types: jobs, offers, machines, runs and their ends. Pure data."""
# ruff: noqa: F401
# mypy: implicit-reexport

from vastrun.contract.program_kind import Proof
from vastrun.launcher.core.boxes import (
    BoxStatus,
    Bundle,
    CheckpointCopy,
    CollectResult,
    CommandResult,
    DataContents,
    LocalProgram,
    PullResult,
    SshAccess,
)
from vastrun.launcher.core.labels import LABEL_PREFIX
from vastrun.launcher.core.left_out import KeepAnswer, LeftOutFile, LeftOutFiles
from vastrun.launcher.core.market import (
    AccountStatus,
    Charge,
    ExtraRates,
    Forecast,
    Identity,
    Instance,
    MachineEnd,
    Offer,
    RentalOrder,
    RunNetwork,
)
from vastrun.launcher.core.phases import Phase
from vastrun.launcher.core.runs import (
    NOTHING,
    Cost,
    Driver,
    Event,
    MachineState,
    MeasuredRun,
    Meter,
    Origin,
    Progress,
    Rental,
    Run,
    Settled,
    UserRequest,
)
from vastrun.launcher.core.verdict import Cause, Evidence, StepEnd, Verdict
