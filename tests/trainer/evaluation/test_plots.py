"""Pictures: a file for each thing there is to see, of any field and of rollouts that ran away."""

import math
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.slow import slow
from tests.trainer.conftest import together
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation import report
from vastrun.trainer.evaluation.evaluation import WHOLE, Evaluation, Example
from vastrun.trainer.evaluation.planes import Coordinates, planes_of
from vastrun.trainer.evaluation.scores import Scores
from vastrun.trainer.job.data_config import DataConfig

FRAMES = 4


def scores(value: float) -> Scores:
    names = [name for name in Scores.__annotations__ if name not in ("diverged", "nrmse_by_frame")]
    return Scores(**dict.fromkeys(names, value), diverged=0, nrmse_by_frame=(value,) * FRAMES)


def evaluation(
    grid: tuple[int, ...], *, task: str = "mine:waves", steady: bool = False, rolled: float = 1.0
) -> Evaluation:
    frames = 1 if steady else FRAMES
    truth = torch.rand(frames + 1, 2, *grid)
    coordinates = Coordinates.of(DataConfig(task=task), grid)
    examples = [
        Example(
            label="beta 1",
            axes=tuple(coordinates.axes[axis] for axis in plane.shown),
            truth=plane.cut(truth),
            rollout=plane.cut(truth[1:] * rolled),
        )
        for plane in planes_of(grid)
    ]
    found = {"rollout": scores(rolled), "nearest": scores(0.5)}
    return Evaluation(
        task=task,
        steady=steady,
        samples=8,
        scores={WHOLE: found, "beta 0.4": found, "beta 1": found},
        spectra=torch.rand(3, 2, 9) * torch.tensor([1.0, rolled, rolled]).reshape(3, 1, 1),
        coordinates=coordinates,
        examples=(*examples, examples[0]),
    )


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        *slow((evaluation((8, 8)), ["fields", "rollouts", "error", "spectra"])),
        (evaluation((8, 8), steady=True), ["fields", "spectra"]),
        *slow(
            (evaluation((16,), rolled=math.inf), ["fields", "rollouts", "error", "spectra"]),
            (evaluation((8, 10, 12)), ["fields", "rollouts", "error", "spectra"]),
        ),
    ],
    ids=["square", "steady", "line, ran away", "cube"],
)
@pytest.mark.sampled(4)
def test_each_kind_of_task_has_its_pictures(tmp_path: Path, seen: Evaluation, kinds: list[str]) -> None:
    from vastrun.trainer.evaluation.plots import draw  # not in the process that is to find no matplotlib

    beats: list[None] = []
    paths = draw(tmp_path / "seen", [seen], lambda: beats.append(None))["mine:waves"]
    assert [path.name for path in paths] == [f"mine-waves-{kind}.png" for kind in kinds]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert len(beats) == len(paths)  # drawing takes a while, and nobody is to take that for a hang


@pytest.mark.slow
def test_no_name_of_the_error_s_picture_is_cut_at_its_edge(tmp_path: Path) -> None:
    from PIL import Image

    from vastrun.trainer.evaluation.plots import _LINES, draw

    seen = evaluation((16,))
    every = dict.fromkeys(_LINES, scores(0.5))
    seen = replace(seen, scores={WHOLE: every, "beta 0.4": every})
    paths = draw(tmp_path, [seen], lambda: None)["mine:waves"]
    drawn = next(path for path in paths if path.name.endswith("error.png"))
    with Image.open(drawn) as image:
        edge = image.convert("L").crop((image.width - 5, 0, image.width, image.height))
    assert edge.getextrema()[0] > 250


@pytest.mark.slow
@pytest.mark.torch
def test_the_ranks_of_a_machine_share_the_pictures(tmp_path: Path) -> None:
    seen = evaluation((16,))
    one, two = tmp_path / "one", tmp_path / "two"
    assert together(write, 1, one, seen) == [4]
    assert together(write, 2, two, seen) == [2, 2]
    assert files_in(two) == files_in(one)


@pytest.mark.torch
def test_where_matplotlib_is_missing_the_report_is_written_and_one_line_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    together(write_without_matplotlib, 2, log, tmp_path / "report")
    assert log.read_text() == "no pictures of the scores: the package matplotlib is not installed\n"
    assert files_in(tmp_path / "report").keys() == {report.SCORES, report.REPORT}


@pytest.mark.slow
@pytest.mark.torch
def test_the_scores_are_there_before_anything_is_drawn(tmp_path: Path) -> None:
    assert together(seen_while_drawing, 1, tmp_path) == [[report.SCORES]]


def seen_while_drawing(ranks: Ranks, folder: Path) -> list[str]:
    """The files that are there when the first picture is begun."""
    found: list[list[str]] = []

    def beat() -> None:
        found.append(sorted(files_in(folder)))

    summary_of(evaluation((16,))).write(folder, "run, step 3", ranks, plots=True, beat=beat)
    return found[0]


def summary_of(seen: Evaluation) -> report.EvaluationSummary:
    return report.EvaluationSummary(evaluations=[seen], comparisons=[])


def write(ranks: Ranks, folder: Path, seen: Evaluation) -> int:
    """How many pictures this rank drew."""
    beats: list[None] = []
    summary_of(seen).write(folder, "run, step 3", ranks, plots=True, beat=lambda: beats.append(None))
    return len(beats)


def write_without_matplotlib(ranks: Ranks, log: Path, folder: Path) -> None:
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    with log.open("a") as file, redirect_stdout(file):
        write(ranks, folder, evaluation((16,)))


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("grid", [(7,), (4, 6)])
def test_a_line_and_a_square_are_shown_whole(grid: tuple[int, ...]) -> None:
    field = torch.rand(3, *grid)
    [plane] = planes_of(grid)
    assert torch.equal(plane.cut(field), field)
    assert plane.label(Coordinates.of(DataConfig(task="darcy"), grid).axes) == ""


def test_a_cube_is_cut_through_its_middle_along_each_pair_of_axes() -> None:
    grid = (4, 6, 8)
    field = torch.rand(2, *grid)
    planes = planes_of(grid)
    expected = [field[..., 4], field[:, :, 3], field[:, 2]]
    assert all(torch.equal(plane.cut(field), cut) for plane, cut in zip(planes, expected, strict=True))
    axes = Coordinates.of(DataConfig(task="shallow_water"), grid).axes
    # The fifth of eight cells of a domain from -2.5 to 2.5.
    assert [plane.label(axes) for plane in planes] == ["z = 0.312", "y = 0.417", "x = 0.625"]


def test_axes_have_the_values_of_the_data_and_those_of_a_users_task_count_points() -> None:
    known = Coordinates.of(DataConfig(task="diffusion_reaction", dt=0.05), (16, 16))
    assert [(axis.name, axis.low, axis.high) for axis in known.axes] == [("x", -1.0, 1.0), ("y", -1.0, 1.0)]
    assert known.axes[0].centres[[0, -1]] == pytest.approx([-0.9375, 0.9375])
    assert (known.at(3), known.channels) == ("t = 0.15", ("u", "v"))
    own = Coordinates.of(DataConfig(task="mine:waves", dt=0.05), (16,))
    assert own.axes[0].name == "x, point"
    assert own.axes[0].centres.tolist() == list(range(16))
    assert (own.at(3), own.channels) == ("frame 3", ())
