"""Problem: a PDE whose data we can make, and read from our files and from PDEBench's."""

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
from vastrun.trainer.data import making, manifest, pdebench, shared
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.making import Piece, Watch
from vastrun.trainer.data.pdebench import Attribute, Grid
from vastrun.trainer.data.samples import FilePart, Samples, Splits
from vastrun.trainer.sampling.windows import Symmetry

if TYPE_CHECKING:
    from vastrun.trainer.data.stored import StoredTask, StoredTrajectories
    from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask

_TRAIN_STREAM, _TEST_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The sizes of a task's data, as a job asks for them; nothing was read."""

    frame_shape: tuple[int, ...]
    """Of a sample: (frames, channels, *points); a steady problem has two frames."""
    steady: bool
    symmetry: Symmetry
    conditions: int
    train: int
    """Samples to train on, of all files together."""
    test: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What differs between the tasks."""

    task: str
    generator: str
    """Name and version of what makes the data: another version makes other data."""
    file: str
    """PDEBench's name of the files, with {} for the parameter."""
    attribute: str | None
    """PDEBench's name of the parameter; None: there is none, and one file."""
    channels: tuple[str, ...]
    layout: Callable[[Grid], Layout]
    draw: Callable[[int, Grid, np.random.Generator], Sized]
    """So many random beginnings, or coefficients."""
    solve: Callable[[Any, Any, Grid], np.ndarray]
    """Those that were drawn, at a parameter: (n, *layout.shape)."""
    symmetry: Symmetry
    """What training may make of a solution."""
    chunk: int
    """Samples that are drawn and solved at once: another number draws others."""
    method: Mapping[str, Attribute] = field(default_factory=dict)
    """What else a file says of how it was made."""
    cells_of: Callable[[int, Any], int] | None = None
    """How many cells the solver has for so many points, at a parameter, where it has more."""

    def generate(
        self, config: DataConfig, folder: Path, *, jobs: int | None = 1, watch: Watch | None = None
    ) -> list[str]:
        """Make each parameter's file in `folder`; what fits the config, or is not ours, is left alone.

        `jobs` processes solve, None: as many as are worth it; that changes nothing in the files. A line for
        each file.
        """
        lines = []
        layout = self.layout(_grid(config))
        for parameter in self._parameters(config):
            path = self.path_of(folder, parameter)
            attrs = self._attrs(config, parameter)
            present = pdebench.attributes(path)
            # A file without our mark is PDEBench's own, and took hours to download: never written over.
            if present is not None and (present == attrs or "generator" not in present):
                lines.append(f"{path.name}: present")
                continue
            n = config.train + config.test
            pieces = self._pieces(config, parameter)
            make = partial(making.make, path, pieces, layout=layout, n=n, attrs=attrs, jobs=jobs, watch=watch)
            taken = shared.taken_or_made(path, attrs, make)
            manifest.add(path, attrs)
            how = "made before on this machine" if taken else "made"
            lines.append(f"{path.name}: {_told(config, n, layout)} {how}")
        return lines

    def splits(self, config: DataConfig, folder: Path) -> Splits:
        """Split every file: the first `train` samples, the last of them `validation`, and the last `test`.

        Raises DataError.
        """
        kept_back = slice(config.train - config.validation, config.train)
        return Splits(
            train=self._split(config, folder, slice(kept_back.start)),
            validation=self._split(config, folder, kept_back) if config.validation else None,
            test=self._split(config, folder, slice(-config.test, None)),
        )

    def validation(self, config: DataConfig, folder: Path) -> Trajectories | None:
        """Return what is kept back of the samples to train on. None: nothing is. Raises DataError."""
        from vastrun.trainer.data.trajectories import Trajectories

        kept_back = self.splits(config, folder).validation
        return None if kept_back is None else Trajectories.of(kept_back)

    def outline(self, config: DataConfig) -> Outline:
        """Return the sizes of the data that `config` asks for."""
        layout, parameters = self.layout(_grid(config)), self._parameters(config)
        return Outline(
            frame_shape=(2, 1, *layout.shape[1:]) if layout.steady else layout.shape,
            steady=layout.steady,
            symmetry=self.symmetry,
            conditions=len(self._conditions(config, parameters[0])),
            train=(config.train - config.validation) * len(parameters),
            test=config.test * len(parameters),
        )

    def load(self, config: DataConfig, folder: Path) -> tuple[Trajectories, Trajectories]:
        """Return what to train on and what to test on: of every file the first `train` and the last `test`.

        All files begin from the same initial conditions: no test shape is seen in training at another
        parameter. Raises DataError.
        """
        from vastrun.trainer.data.trajectories import Trajectories

        splits = self.splits(config, folder)
        return Trajectories.of(splits.train), Trajectories.of(splits.test)

    def store(self, config: DataConfig, folder: Path) -> tuple[StoredTrajectories, Trajectories]:
        """Load as `load` does; what to train on stays in memory, or on disk where `config.keep` says so."""
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
        """Return where the samples of one parameter lie; PDEBench's own name for them."""
        return folder / self.file.format(parameter)

    def _split(self, config: DataConfig, folder: Path, rows: slice) -> Samples:
        """Return these samples of every file."""
        layout, parts = self.layout(_grid(config)), []
        for parameter in self._parameters(config):
            path = self._checked(folder, parameter)
            with pdebench.opened(path) as file:
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
        # Not those of `config.task`: a task of the user's own may extend this one.
        return config.parameters_of(self.task)

    def _pieces(self, config: DataConfig, parameter: float | None) -> Iterator[Piece]:
        grid = _grid(config)
        for stream, n in ((_TRAIN_STREAM, config.train), (_TEST_STREAM, config.test)):
            rng = np.random.default_rng([config.seed, stream])
            for begin in range(0, n, self.chunk):
                drawn = self.draw(min(self.chunk, n - begin), grid, rng)
                yield partial(self.solve, drawn, parameter, grid)

    def _checked(self, folder: Path, parameter: float | None) -> Path:
        """Return the file of one parameter, which must not say that it is of another."""
        path = self.path_of(folder, parameter)
        found = (pdebench.attributes(path) or {}).get(self.attribute or "", parameter)
        if found != parameter:
            raise DataError(f"{path}: expected the attribute {self.attribute} to be {parameter}, got {found}")
        return path

    def _conditions(self, config: DataConfig, parameter: float | None) -> tuple[float, ...]:
        steady = self.layout(_grid(config)).steady
        told = () if parameter is None else (log10(parameter),)
        return told if steady else (*told, log10(config.dt))

    def _attrs(self, config: DataConfig, parameter: float | None) -> dict[str, Attribute]:
        # All that the values follow from: a file that differs in one of these is made anew.
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


def _told(config: DataConfig, n: int, layout: Layout) -> str:
    if layout.steady:
        return f"{n} steady problems of {config.points} x {config.points} points"
    across = " x ".join([str(config.points)] * (len(layout.shape) - 2))
    return f"{n} trajectories of {config.frames} frames and {across} points"


def _grid(config: DataConfig) -> Grid:
    return Grid(points=config.points, frames=config.frames, dt=config.dt)
