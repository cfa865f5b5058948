"""Problem: a PDE whose data vastrun can generate, and read from its own files and PDEBench's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from functools import partial
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vastrun.contract.config import DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer.data import manifest, pdebench, sample_writer, shared_cache
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute, Grid
from vastrun.trainer.data.sample_writer import Piece, ProgressCallback
from vastrun.trainer.data.samples import FilePart, Samples, Splits
from vastrun.trainer.sampling.windows import Symmetry

if TYPE_CHECKING:
    from vastrun.trainer.data.stored import StoredTask, StoredTrajectories
    from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask

_TRAIN_STREAM, _TEST_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class DataSizes:
    """Sizes of a task's data, as the job configures them."""

    frame_shape: tuple[int, ...]
    """Shape of a sample: (frames, channels, *points); a steady problem has two frames."""
    steady: bool
    symmetry: Symmetry
    conditions: int
    train: int
    """Training samples of all files together."""
    test: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything that differs between the built-in tasks."""

    task: str
    generator: str
    """Name and version of the generator; another version makes other data."""
    file: str
    """PDEBench's file name, with {} for the parameter."""
    attribute: str | None
    """PDEBench's name of the parameter; None: no parameter, and a single file."""
    channels: tuple[str, ...]
    layout: Callable[[Grid], Layout]
    draw: Callable[[int, Grid, np.random.Generator], Sized]
    """Draws n random initial conditions, or coefficients."""
    solve: Callable[[Any, Any, Grid], np.ndarray]
    """Solves the drawn problems at a parameter: (n, *layout.shape)."""
    symmetry: Symmetry
    """Symmetry that training may use to augment the data."""
    chunk: int
    """Samples that are drawn and solved at once; another number draws other samples."""
    method: Mapping[str, Attribute] = field(default_factory=dict)
    """Further attributes that record how a file was made."""
    cells_of: Callable[[int, Any], int] | None = None
    """Number of solver cells for a number of points and a parameter; None: as many as points."""

    def generate(
        self,
        config: DataConfig,
        folder: Path,
        *,
        jobs: int | None = 1,
        on_progress: ProgressCallback | None = None,
    ) -> list[str]:
        """Make each parameter's file in `folder`, unless it matches the config or is PDEBench's own.

        Returns a line for each file. `jobs` is the number of processes, None: as many as pay off; it does not
        change the files.
        """
        lines = []
        layout = self.layout(_grid(config))
        for parameter in self._parameters(config):
            path = self.path_of(folder, parameter)
            attrs = self._attrs(config, parameter)
            present = pdebench.attributes(path)
            # A file without a generator is PDEBench's own, and took hours to download: never overwrite it.
            if present is not None and (present == attrs or "generator" not in present):
                lines.append(f"{path.name}: present")
                continue
            n = config.train + config.test
            pieces = self._pieces(config, parameter)
            make = partial(
                sample_writer.write_samples,
                path,
                pieces,
                layout=layout,
                n=n,
                attrs=attrs,
                jobs=jobs,
                on_progress=on_progress,
            )
            fetched = shared_cache.fetch_or_make(path, attrs, make)
            manifest.add(path, attrs)
            how = "made before on this machine" if fetched else "made"
            lines.append(f"{path.name}: {_describe(config, n, layout)} {how}")
        return lines

    def splits(self, config: DataConfig, folder: Path) -> Splits:
        """Split every file: the first `train` samples, the last of them for validation, and the last `test`.

        Raises DataError.
        """
        held_out = slice(config.train - config.validation, config.train)
        return Splits(
            train=self._split(config, folder, slice(held_out.start)),
            validation=self._split(config, folder, held_out) if config.validation else None,
            test=self._split(config, folder, slice(-config.test, None)),
        )

    def validation(self, config: DataConfig, folder: Path) -> Trajectories | None:
        """Return the samples held out of the training set; None: there are none. Raises DataError."""
        from vastrun.trainer.data.trajectories import Trajectories

        held_out = self.splits(config, folder).validation
        return None if held_out is None else Trajectories.of(held_out)

    def data_sizes(self, config: DataConfig) -> DataSizes:
        """Return the sizes of the configured data."""
        layout, parameters = self.layout(_grid(config)), self._parameters(config)
        return DataSizes(
            frame_shape=(2, 1, *layout.shape[1:]) if layout.steady else layout.shape,
            steady=layout.steady,
            symmetry=self.symmetry,
            conditions=len(self._conditions(config, parameters[0])),
            train=(config.train - config.validation) * len(parameters),
            test=config.test * len(parameters),
        )

    def load(self, config: DataConfig, folder: Path) -> tuple[Trajectories, Trajectories]:
        """Return training and test set: the first `train` and the last `test` samples of every file.

        All files start from the same initial conditions: no test shape is seen in training at another
        parameter. Raises DataError.
        """
        from vastrun.trainer.data.trajectories import Trajectories

        splits = self.splits(config, folder)
        return Trajectories.of(splits.train), Trajectories.of(splits.test)

    def store(self, config: DataConfig, folder: Path) -> tuple[StoredTrajectories, Trajectories]:
        """Load like `load`, but leave the training set in memory or on disk, as `config.keep` says."""
        from vastrun.trainer.data.stored import StoredTrajectories
        from vastrun.trainer.data.trajectories import Trajectories

        splits = self.splits(config, folder)
        return StoredTrajectories(splits.train, keep=config.keep), Trajectories.of(splits.test)

    def make(self, config: DataConfig, folder: Path) -> TrajectoryTask | StoredTask:
        """Make the task. Raises DataError."""
        from vastrun.trainer.data.stored import StoredTask
        from vastrun.trainer.data.trajectories import TrajectoryTask

        if config.keep == "device":
            return TrajectoryTask(*self.load(config, folder))
        return StoredTask(*self.store(config, folder))

    def path_of(self, folder: Path, parameter: float | None) -> Path:
        """Return the path of one parameter's file, with PDEBench's file name."""
        return folder / self.file.format(parameter)

    def _split(self, config: DataConfig, folder: Path, rows: slice) -> Samples:
        """Return the samples `rows` of every file."""
        layout, parts = self.layout(_grid(config)), []
        for parameter in self._parameters(config):
            path = self._check_parameter(folder, parameter)
            with pdebench.open_file(path) as file:
                stride, count = layout.stride(path, file, config.train + config.test), layout.count(file)
            chosen = range(count)[rows]
            part = FilePart(
                path=path,
                first=chosen.start,
                count=len(chosen),
                stride=stride,
                parameters=self._conditions(config, parameter),
            )
            parts.append(part)
        mapped = config.keep == "host"
        return Samples(layout, self.channels, parts, symmetry=self.symmetry, mapped=mapped)

    def _parameters(self, config: DataConfig) -> tuple[float | None, ...]:
        # Not those of `config.task`: a user's task may extend this one.
        return config.parameters_of(self.task)

    def _pieces(self, config: DataConfig, parameter: float | None) -> Iterator[Piece]:
        grid = _grid(config)
        for stream, n in ((_TRAIN_STREAM, config.train), (_TEST_STREAM, config.test)):
            rng = np.random.default_rng([config.seed, stream])
            for begin in range(0, n, self.chunk):
                drawn = self.draw(min(self.chunk, n - begin), grid, rng)
                yield partial(self.solve, drawn, parameter, grid)

    def _check_parameter(self, folder: Path, parameter: float | None) -> Path:
        """Return the path of one parameter's file. Raises DataError when it is of another parameter."""
        path = self.path_of(folder, parameter)
        found = (pdebench.attributes(path) or {}).get(self.attribute or "", parameter)
        if found != parameter:
            raise DataError(f"{path}: expected the attribute {self.attribute} to be {parameter}, got {found}")
        return path

    def _conditions(self, config: DataConfig, parameter: float | None) -> tuple[float, ...]:
        steady = self.layout(_grid(config)).steady
        logs = () if parameter is None else (log10(parameter),)
        return logs if steady else (*logs, log10(config.dt))

    def _attrs(self, config: DataConfig, parameter: float | None) -> dict[str, Attribute]:
        # Everything the values depend on: a file that differs in one of these is made again.
        attrs: dict[str, Attribute] = {"generator": self.generator}
        if self.attribute is not None and parameter is not None:
            attrs[self.attribute] = float(parameter)
        attrs |= {
            "seed": config.seed,
            "train": config.train,
            "test": config.test,
            "points": config.points,
        }
        if not self.layout(_grid(config)).steady:
            attrs |= {"frames": config.frames, "dt": config.dt}
        if self.cells_of is not None:
            attrs["cells"] = self.cells_of(config.points, parameter)
        return attrs | dict(self.method)


def _describe(config: DataConfig, n: int, layout: Layout) -> str:
    if layout.steady:
        return f"{n} steady problems of {config.points} x {config.points} points"
    across = " x ".join([str(config.points)] * (len(layout.shape) - 2))
    return f"{n} trajectories of {config.frames} frames and {across} points"


def _grid(config: DataConfig) -> Grid:
    return Grid(points=config.points, frames=config.frames, dt=config.dt)
