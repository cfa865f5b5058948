"""W&B variables: make the W&B run of a user's program the same after restarts and on other machines.

Standard library only. W&B reads them wherever the program's `wandb.init` does not say otherwise:
https://docs.wandb.ai/guides/track/environment-variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from vastrun.contract.job import Job

_ID, _RESUME = "WANDB_RUN_ID", "WANDB_RESUME"


def wandb_variables(job: Job, rank: int, world_size: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return W&B's defaults for one rank of a program; those of the user are in `environment` and stay.

    Each rank has a run of its own id: two that create the same run are what W&B answers with HTTP 409.
    With `WANDB_RESUME=never` each start has a new run, as has one without an id.
    """
    if job.train is not None:  # the onboard trainer sets them itself
        return {}
    first = first_run(job)
    defaults = {"WANDB_NAME": f"{job.name} {first}".strip() + (f" rank {rank}" if rank else "")}
    if job.batch is not None:
        defaults |= {"WANDB_RUN_GROUP": job.batch.name, "WANDB_TAGS": job.batch.tag}
    elif world_size > 1:
        defaults["WANDB_RUN_GROUP"] = first
    if environment.get(_RESUME) != "never":
        defaults |= {_ID: wandb_id(job, rank), _RESUME: "allow"}
    return {name: value for name, value in defaults.items() if name not in environment}


def wandb_id(job: Job, rank: int = 0) -> str:
    """Return the id of a rank's W&B run."""
    return first_run(job) + (f"-rank{rank}" if rank else "")


def first_run(job: Job) -> str:
    """Return the id of the first run of those that this one continues, by the ledger of the launcher.

    The last part of a URL to start from is not one: it may be any word.
    """
    continues = job.continues[:-1] if job.start_from else job.continues
    return continues[-1] if continues else job.run_id
