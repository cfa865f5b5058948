"""Problem: a PDE whose data vastrun can generate, and read from its own files and PDEBench's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, takewhile
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vastrun.trainer.data import pdebench
from vastrun.trainer.data.draws import distinct_draws
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute, Grid
from vastrun.trainer.data.sample_writer import FilePlan, ProgressCallback, make_files
from vastrun.trainer.data.samples import FilePart, Samples, Splits
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.sampling.windows import Symmetry

if TYPE_CHECKING:
    from vastrun.trainer.data.stored import StoredTask, StoredTrajectories
    from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask


@dataclass(frozen=True, kw_only=True)
class DataSizes:
    """Sizes of a task's data, as the job configures them."""

    frame_shape: tuple[int, ...]
    """Shape of a sample: (frames, channels, *points); a steady problem has two frames."""
    channels: tuple[str, ...]
    """Names of the channels; of a steady problem, input before target."""
    extent: tuple[float, float]
    """Bounds of the domain along each axis."""
    time_unit: str
    """Unit of time; empty where there is none."""
    steady: bool
    symmetry: Symmetry
    static: int
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
    file: Callable[..., str]
    """Returns PDEBench's file name at the given parameters."""
    attributes: tuple[tuple[str, ...], ...] = ()
    """PDEBench's names of each parameter: of a compressible flow's viscosity there are two."""
    further_file: Callable[[int], str] | None = None
    """Returns the name of a further file, from 1 on, which continues the first; None: there is one."""
    channels: tuple[str, ...]
    layout: Callable[[Grid], Layout]
    draw: Callable[[int, Grid, np.random.Generator], Sized]
    """Draws n random initial conditions, or coefficients."""
    solve: Callable[..., np.ndarray]
    """Maps what was drawn, each parameter and the grid to the solution: (n, *layout.shape), or without the
    axis of a single channel. It may be pickled to another process."""
    continue_from: Callable[..., np.ndarray] | None = None
    """Maps first frames (n, K, *cells), or coefficients, each parameter and the grid of those cells to the
    solution there; None: the first frame does not tell all that the solver needs."""
    symmetry: Symmetry
    """Symmetry that training may use to augment the data."""
    static: int = 0
    """Number of the last channels, which do not change with time: models are given them."""
    extent: tuple[float, float] = (0.0, 1.0)
    """Bounds of the domain along each axis, in the units of the data."""
    time_unit: str = ""
    """Unit of time; empty for an equation without dimensions."""
    chunk: int
    """Samples that are drawn and solved at once; another number draws other samples."""
    method: Mapping[str, Attribute] = field(default_factory=dict)
    """Further attributes that record how a file was made."""
    cells_of: Callable[..., int] | None = None
    """Number of solver cells for a number of points and the parameters; None: as many as points."""

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
        layout = self.layout(_grid(config))
        return make_files(self._file_plans(config, folder), layout, jobs=jobs, on_progress=on_progress)

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
        held_out = self.splits(config, folder).validation
        return None if held_out is None else _read(held_out)

    def unseen(self, config: DataConfig, folder: Path) -> Trajectories | None:
        """Return test samples at parameters that are not trained; None: there are none. Raises DataError."""
        samples = self.unseen_samples(config, folder)
        return None if samples is None else _read(samples)

    def unseen_samples(self, config: DataConfig, folder: Path) -> Samples | None:
        """Return the samples of `unseen`, read on access and without torch."""
        parameters = config.unseen_parameters_of(self.task)
        if not parameters:
            return None
        return self._split(_of_tests(config), folder, slice(-config.test, None), parameters)

    def data_sizes(self, config: DataConfig) -> DataSizes:
        """Return the sizes of the configured data."""
        layout, parameters = self.layout(_grid(config)), self._parameters(config)
        return DataSizes(
            frame_shape=(2, 1, *layout.shape[1:]) if layout.steady else layout.shape,
            channels=self.channels,
            extent=self.extent,
            time_unit=self.time_unit,
            steady=layout.steady,
            symmetry=self.symmetry,
            static=self.static,
            conditions=len(self._conditions(config, parameters[0])),
            train=(config.train - config.validation) * len(parameters),
            test=config.test * len(parameters),
        )

    def load(self, config: DataConfig, folder: Path) -> tuple[Trajectories, Trajectories]:
        """Return training and test set: the first `train` and the last `test` samples of every file.

        All files start from the same initial conditions: no test shape is seen in training at another
        parameter. Raises DataError.
        """
        splits = self.splits(config, folder)
        return _read(splits.train), _read(splits.test)

    def store(self, config: DataConfig, folder: Path) -> tuple[StoredTrajectories, Trajectories]:
        """Load like `load`, but leave the training set in memory or on disk, as `config.keep` says."""
        from vastrun.trainer.data.stored import StoredTrajectories

        splits = self.splits(config, folder)
        return StoredTrajectories(splits.train, keep=config.keep), _read(splits.test)

    def make(self, config: DataConfig, folder: Path) -> TrajectoryTask | StoredTask:
        """Make the task. Raises DataError."""
        from vastrun.trainer.data.stored import StoredTask
        from vastrun.trainer.data.trajectories import TrajectoryTask

        unseen = self.unseen(config, folder)
        if config.keep == "device":
            return TrajectoryTask(*self.load(config, folder), unseen=unseen)
        return StoredTask(*self.store(config, folder), unseen=unseen)

    def solve_from(self, config: DataConfig, first: np.ndarray, conditions: Sequence[float]) -> np.ndarray:
        """Solve from first frames (n, K, *cells) on their own grid, at conditions (C,): (n, T, K, *cells)."""
        assert self.continue_from is not None
        grid = Grid(points=first.shape[-1], frames=config.frames, dt=config.dt)
        parameters = (10**value for value in conditions[: len(self.attributes)])
        return self.continue_from(first, *parameters, grid).reshape(len(first), -1, *first.shape[1:])

    def path_of(self, folder: Path, *parameters: float) -> Path:
        """Return the path of the first file at these parameters, with PDEBench's file name."""
        return folder / self.file(*parameters)

    def _split(
        self,
        config: DataConfig,
        folder: Path,
        rows: slice,
        every: tuple[tuple[float, ...], ...] | None = None,
    ) -> Samples:
        """Return the samples `rows` at each of some parameters, or of those that are trained.

        The files of a parameter count as one.
        """
        layout = self.layout(_grid(config))
        parts = [
            part
            for parameters in every or self._parameters(config)
            for part in self._parts(config, layout, folder, parameters, rows)
        ]
        mapped = config.keep == "host"
        return Samples(
            layout, self.channels, parts, symmetry=self.symmetry, static=self.static, mapped=mapped
        )

    def _parts(
        self, config: DataConfig, layout: Layout, folder: Path, parameters: tuple[float, ...], rows: slice
    ) -> Iterator[FilePart]:
        """Yield the part of each file that has some of the samples `rows` at these parameters."""
        self._check_parameters(folder, parameters)
        paths, strides, counts = self._files(folder, parameters), [], []
        for path in paths:
            with pdebench.open_file(path) as file:
                min_samples = config.train + config.test if len(paths) == 1 else 1
                strides.append(layout.stride(path, file, min_samples))
                counts.append(layout.count(file))
        if sum(counts) < config.train + config.test:
            raise DataError(
                f"{paths[0]} and {len(paths) - 1} further files: expected at least "
                f"{config.train + config.test} samples in all, got {sum(counts)}"
            )
        chosen, begin = range(sum(counts))[rows], 0
        for path, stride, samples in zip(paths, strides, counts, strict=True):
            first, stop = max(chosen.start, begin) - begin, min(chosen.stop, begin + samples) - begin
            begin += samples
            if first < stop:
                yield FilePart(
                    path=path,
                    first=first,
                    count=stop - first,
                    stride=stride,
                    parameters=self._conditions(config, parameters),
                )

    def _files(self, folder: Path, parameters: tuple[float, ...]) -> list[Path]:
        """Return the first file at these parameters, and those of PDEBench's that continue it."""
        paths = [self.path_of(folder, *parameters)]
        if self.further_file is None or "generator" in (pdebench.attributes(paths[0]) or {}):
            return paths
        further = map(folder.joinpath, map(self.further_file, count(1)))
        return [*paths, *takewhile(Path.exists, further)]

    def _parameters(self, config: DataConfig) -> tuple[tuple[float, ...], ...]:
        # Not those of `config.task`: a user's task may extend this one.
        return config.parameters_of(self.task)

    def _file_plans(self, config: DataConfig, folder: Path) -> Iterator[FilePlan]:
        """Yield the files that are trained on, and those that are only tested on."""
        own = config.has_ranges(self.task)
        for number, parameters in enumerate(self._parameters(config)):
            yield self._file_plan(config, folder, parameters, number if own else None)
        for parameters in config.unseen_parameters_of(self.task):
            yield self._file_plan(_of_tests(config), folder, parameters, None)

    def _file_plan(
        self, config: DataConfig, folder: Path, parameters: tuple[float, ...], number: int | None
    ) -> FilePlan:
        """Return the plan of a file. `number`: that of a file with its own training conditions."""
        grid = _grid(config)
        layout = self.layout(grid)
        draws = distinct_draws(
            lambda n, rng: self.draw(n, grid, rng),
            seed=config.seed,
            file=number,
            train=config.train,
            test=config.test,
            chunk=self.chunk,
            axes=len(layout.shape) - (1 if layout.steady else 2),
        )
        # Everything the values depend on: a file that differs in one of these is made again.
        attrs: dict[str, Attribute] = {"generator": self.generator}
        attrs |= self._named(parameters)
        attrs |= {"seed": config.seed, "train": config.train, "test": config.test, "points": config.points}
        if not layout.steady:
            attrs |= {"frames": config.frames, "dt": config.dt}
        if self.cells_of is not None:
            attrs["cells"] = self.cells_of(config.points, *parameters)
        if number is not None:
            attrs["conditions"] = number
        return FilePlan(
            path=self.path_of(folder, *parameters),
            attrs=attrs | dict(self.method),
            samples=config.train + config.test,
            pieces=(partial(_solved, self.solve, layout.shape, drawn, *parameters, grid) for drawn in draws),
        )

    def _check_parameters(self, folder: Path, parameters: tuple[float, ...]) -> None:
        """Raise DataError when the file at these parameters says that it is of others."""
        path = self.path_of(folder, *parameters)
        present = pdebench.attributes(path) or {}
        for name, expected in self._named(parameters).items():
            found = present.get(name, expected)
            if found != expected:
                raise DataError(f"{path}: expected the attribute {name} to be {expected}, got {found}")

    def _named(self, parameters: tuple[float, ...]) -> dict[str, float]:
        """Return the parameters by PDEBench's names."""
        pairs = zip(self.attributes, parameters, strict=True)
        return {name: float(value) for names, value in pairs for name in names}

    def _conditions(self, config: DataConfig, parameters: tuple[float, ...]) -> tuple[float, ...]:
        steady = self.layout(_grid(config)).steady
        logs = tuple(map(log10, parameters))
        return logs if steady else (*logs, log10(config.dt))


def _of_tests(config: DataConfig) -> DataConfig:
    """Return the data of a file that is tested on and not trained."""
    return replace(config, train=0, validation=0)


def _grid(config: DataConfig) -> Grid:
    return Grid(points=config.points, frames=config.frames, dt=config.dt)


def _solved(
    solve: Callable[..., np.ndarray], shape: tuple[int, ...], drawn: Sized, *arguments: float | Grid
) -> np.ndarray:
    """Return solutions of this shape each."""
    return solve(drawn, *arguments).reshape(-1, *shape)


def _read(samples: Samples) -> Trajectories:
    """Read samples into memory; only what reads them waits for torch."""
    from vastrun.trainer.data.trajectories import Trajectories

    return Trajectories.of(samples)
