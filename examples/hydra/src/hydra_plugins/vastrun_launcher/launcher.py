"""The launcher: jobs of a multirun become the points of one batch, through vastrun's Python API."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra_plugins.vastrun_launcher.config import register
from omegaconf import DictConfig

register()
log = logging.getLogger(__name__)
_RUN_DIR = "hydra.run.dir=${oc.env:VASTRUN_OUTPUTS}/hydra"
"""Folder of Hydra's own output on the machine, from which it is downloaded."""
_KEY = re.compile(r"[^A-Za-z0-9_]")


class VastrunLauncher(Launcher):
    """Launches the jobs of a multirun as a batch, and waits for its results."""

    def __init__(
        self,
        provider: str,
        usd: float | None,
        parallel: int,
        batch: str | None,
        metric: str,
        goal: str,
        code: str | None,
        wait: bool,
        job: str | None,
    ) -> None:
        self._provider, self._usd, self._parallel, self._batch = provider, usd, parallel, batch
        self._metric, self._goal, self._code, self._wait = metric, goal, code, wait
        self._job = job
        self._config: DictConfig | None = None
        self._program: Path | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep the configuration and the program of the multirun."""
        self._config = config
        self._program = Path(inspect.getfile(inspect.unwrap(task_function))).resolve()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, and return the metric of each; a failed one raises when its value is read."""
        import vastrun

        assert self._config is not None
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        jobs = [
            [one for one in row if not one.lstrip("+~").startswith(("hydra.", "hydra/"))]
            for row in job_overrides
        ]
        points = [values_of(row) for row in jobs]
        document = self._document(jobs, points)
        handle = vastrun.batch(document, provider=self._provider)
        log.info(f"batch {document['name']}: {len(jobs)} jobs on {self._provider}")
        rows = handle.wait() if self._wait else []
        by_values = {_key(row.values): row for row in rows}
        done = []
        for number, (overrides, values) in enumerate(zip(jobs, points, strict=True), start=initial_job_idx):
            row = by_values.get(_key(values))
            if row is not None:
                log.info(f"\t#{number} : {' '.join(overrides)} : {row.verdict}, {self._metric} {row.metric}")
            done.append(self._result(number, overrides, row))
        return done

    def _document(self, jobs: Sequence[Sequence[str]], points: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return the batch file of these jobs."""
        assert self._program is not None
        folder = Path(self._code).resolve() if self._code else self._program.parent
        name = self._batch or f"{self._program.stem}-hydra"
        words = [f"{one.partition('=')[0]}={{{name_of(one)}}}" for one in jobs[0]]
        program = self._program.relative_to(folder).as_posix()
        job = {
            "name": self._program.stem,
            "code": {"path": str(folder)},
            "ranks": 1,
            "success": {"exit_code": 0},
            **self._sections(),
            "command": ["python", program, *words, _RUN_DIR],
        }
        limits = {"parallel": self._parallel} | ({} if self._usd is None else {"usd": self._usd})
        objective = {"metric": self._metric, "goal": self._goal}
        return {"name": name, "job": job, "list": list(points), "objective": objective, "limits": limits}

    def _sections(self) -> dict[str, Any]:
        """Return the sections of the job file. Raises ValueError for a file that is no mapping."""
        assert self._program is not None
        file = Path(self._job) if self._job else self._program.with_name("job.yaml")
        if self._job is None and not file.is_file():
            return {}
        sections = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(sections, dict):
            raise ValueError(f"{file}: expected the sections of a job file")
        return sections

    def _result(self, number: int, overrides: Sequence[str], row: Any) -> JobReturn:
        result = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
        if row is not None and str(row.verdict) != "SUCCEEDED":
            result.status = JobStatus.FAILED
            result.return_value = RuntimeError(f"job {number}: {row.verdict}; vastrun why {row.run_id}")
        elif row is not None:
            result.return_value = row.metric
        return result


def name_of(override: str) -> str:
    """Return the name of an override's value in the batch: `optim.lr=0.1` is `optim_lr`."""
    return "h_" + _KEY.sub("_", override.partition("=")[0])


def values_of(overrides: Sequence[str]) -> dict[str, str]:
    """Return the values of a point by name."""
    return {name_of(override): override.partition("=")[2] for override in overrides}


def _key(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in values.items()))
