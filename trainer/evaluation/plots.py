"""Plots: draws an evaluation as PNG files, without a display and without matplotlib's global state."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vastrun.trainer.evaluation.evaluation import UNSEEN, WHOLE, Evaluation, Example
from vastrun.trainer.evaluation.metrics import BANDS
from vastrun.trainer.evaluation.predictors import LABELS

_COLORS = 256
"""Size of a picture's colour table: the file is a third as large, and looks the same."""
_TICKS = 8
_WITH_BARS = {"gap": 0.75, "right": 0.65}
"""Margins in inches for the labels of the colour bars."""
_TRUTH, _MODEL, _ERROR = "#1a1a1a", "#d1495b", "#8d96a3"
_LINES = {
    "rollout": (_MODEL, "-"),
    "one_step": ("#edae49", "-"),
    "blind": (_MODEL, ":"),
    "persistence": ("#00798c", "--"),
    "one_step_persistence": ("#edae49", "--"),
    "spatial_mean": ("#66a182", "--"),
    "linear_map": ("#3d405b", "--"),
    "nearest": ("#9c6644", "--"),
    "interpolation": ("#9c6644", "-."),
    "solver_half": ("#6a4c93", "-."),
    "solver_quarter": ("#6a4c93", "--"),
    "solver_eighth": ("#6a4c93", ":"),
}
"""Colour and line style of each predictor; models are solid, baselines are not."""


def draw(
    folder: Path, evaluations: Sequence[Evaluation], beat: Callable[[], None], *, part: int = 0, of: int = 1
) -> dict[str, list[Path]]:
    """Draw every `of`-th picture, starting with number `part`; return the paths of all pictures, by task."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {each.task: _pictures(folder, each) for each in evaluations}
    for path, figure, evaluation in [*chain.from_iterable(pictures.values())][part::of]:
        beat()
        canvas = FigureCanvasAgg(figure(evaluation))
        canvas.draw()
        drawn = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
        drawn.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE).save(path, format="PNG")
    return {task: [path for path, *_ in own] for task, own in pictures.items()}


def _pictures(
    folder: Path, evaluation: Evaluation
) -> list[tuple[Path, Callable[[Evaluation], Figure], Evaluation]]:
    """List the pictures of a task: path, what draws it, and what is drawn."""
    on_a_line = evaluation.examples[0].truth.ndim == 3
    in_time = {"rollouts": _space_time if on_a_line else _frames, "error": _error_by_frame}
    kinds = {
        "fields": _lines if on_a_line else _maps,
        **({} if evaluation.steady else in_time),
        "spectra": _spectra,
    }
    stem = re.sub(r"\W+", "-", evaluation.task)
    return [(folder / f"{stem}-{kind}.png", figure, evaluation) for kind, figure in kinds.items()]


def _lines(evaluation: Evaluation) -> Figure:
    """Draw each example's field at a third of the rollout, at two thirds, and at its end."""
    examples = evaluation.examples
    frames = _pick_frames(len(examples[0].rollout), 3)
    figure, grid = _figure(len(examples), len(frames), width=3.6, height=2.2)
    for axes_row, example in zip(grid, examples, strict=True):
        [axis] = example.axes
        for axes, frame in zip(axes_row, frames, strict=True):
            true, rolled = example.truth[frame + 1, 0], example.rollout[frame, 0]
            axes.plot(axis.centres, _finite_values(true), color=_TRUTH, linewidth=1.6, label="true")
            axes.plot(axis.centres, _finite_values(rolled), color=_MODEL, linestyle="--", label="rollout")
            axes.set_title(_join(example.label, evaluation.coordinates.at(frame + 1)), fontsize=9)
            axes.set_xlim(axis.low, axis.high)
    grid[0][0].legend(frameon=False, fontsize=8)
    figure.supxlabel(examples[0].axes[0].name, fontsize=9)
    figure.supylabel(_channel(evaluation), fontsize=9)
    return figure


def _space_time(evaluation: Evaluation) -> Figure:
    """Draw each example over space and time: truth, rollout and difference."""
    figure, grid = _figure(len(evaluation.examples), 3, width=3.4, height=2.5, **_WITH_BARS)
    dt = evaluation.coordinates.dt
    for axes_row, example in zip(grid, evaluation.examples, strict=True):
        true, rolled = example.truth[1:, 0], example.rollout[:, 0]
        titles = [_join(example.label, name) for name in ("true", "rollout", "difference")]
        [axis] = example.axes
        extent = (axis.low, axis.high, 0.5 * dt, (len(true) + 0.5) * dt)
        options = {"aspect": "auto", "origin": "lower", "extent": extent}
        _images(figure, axes_row, (true, rolled), (rolled - true,), titles, **options)
        axes_row[0].set_ylabel(evaluation.coordinates.time_label, fontsize=9)
        for axes in axes_row if evaluation.coordinates.counts_frames else ():
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supxlabel(evaluation.examples[0].axes[0].name, fontsize=9)
    return figure


def _maps(evaluation: Evaluation) -> Figure:
    """Draw each example: first frame, true last frame, predicted last frame, difference."""
    figure, grid = _figure(len(evaluation.examples), 4, width=3.0, height=2.7, **_WITH_BARS, above=0.6)
    for axes_row, example in zip(grid, evaluation.examples, strict=True):
        first_frame, true, rolled = example.truth[0, 0], example.truth[-1, 0], example.rollout[-1, 0]
        time = "" if evaluation.steady else evaluation.coordinates.at(len(example.rollout))
        titles = [_join(time, name) for name in ("true", "rollout", "difference")]
        first_title = [_join(example.label, "given")]
        _plane_images(figure, axes_row[:1], example, (first_frame,), (), first_title)
        _plane_images(figure, axes_row[1:], example, (true, rolled), (rolled - true,), titles)
    _add_head(figure, _channel(evaluation))
    return figure


def _frames(evaluation: Evaluation) -> Figure:
    """Draw some frames of one example: truth, rollout and difference."""
    example = evaluation.examples[0]
    chosen = _pick_frames(len(example.rollout), 4)
    figure, grid = _figure(3, len(chosen), width=2.8, height=2.6, **_WITH_BARS, above=0.6)
    for column, frame in enumerate(chosen):
        true, rolled = example.truth[frame + 1, 0], example.rollout[frame, 0]
        time = evaluation.coordinates.at(frame + 1)
        titles = [_join(time, name) for name in ("true", "rollout", "difference")]
        below = [row[column] for row in grid]
        _plane_images(figure, below, example, (true, rolled), (rolled - true,), titles)
    _add_head(figure, _join(example.label, _channel(evaluation)))
    return figure


def _add_head(figure: Figure, text: str) -> None:
    figure.suptitle(text, fontsize=10, y=1 - 0.08 / figure.get_figheight(), va="top")


def _channel(evaluation: Evaluation) -> str:
    """Return the name of the channel that is drawn, the first one; of a steady problem, its solution."""
    names = evaluation.coordinates.channels
    return names[-1 if evaluation.steady else 0] if names else ""


def _error_by_frame(evaluation: Evaluation) -> Figure:
    """Draw the error of each predictor by frame; thin lines: the model's at each parameter."""
    figure, [[axes]] = _figure(1, 1, width=5.6, height=4.0, right=3.2)
    name = "rollout, at each parameter"
    for part, scores in evaluation.scores.items():
        if part not in (WHOLE, UNSEEN):
            curve = scores["rollout"].nrmse_by_frame
            _curve(axes, curve, 1, color=_MODEL, linewidth=0.7, alpha=0.45, label=name)
            # One legend entry for all of them.
            name = ""
    for predictor, own in evaluation.scores[WHOLE].items():
        color, style = _LINES[predictor]
        _curve(axes, own.nrmse_by_frame, 1, color=color, linestyle=style, label=LABELS[predictor])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="frame", ylabel="nRMSE", title=f"{evaluation.task}: error by frame")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=8)
    return figure


def _spectra(evaluation: Evaluation) -> Figure:
    """Draw the amplitudes of the last frame by wavenumber, with the limits of the score bands."""
    figure, [row] = _figure(1, evaluation.spectra.shape[1], width=5.0, height=4.0)
    channels = evaluation.coordinates.channels
    names = channels[: len(row)] or [f"channel {number}" for number in range(len(row))]
    frame = "solution" if evaluation.steady else "last frame"
    for channel, axes in enumerate(row):
        kinds = ((_TRUTH, "true"), (_MODEL, "rollout"), (_ERROR, "error"))
        for values, (color, name) in zip(evaluation.spectra[:, channel], kinds, strict=True):
            _curve(axes, values.tolist(), 0, color=color, label=name)
        for end in (end for _, end in BANDS.values() if end < evaluation.spectra.shape[2]):
            axes.axvline(end, color="#cccccc", linewidth=0.8, zorder=0)
        which = f", {names[channel]}" if len(row) > 1 else ""
        axes.set(xlabel="wavenumber, in waves per domain", title=f"{evaluation.task}: {frame}{which}")
    row[0].set_ylabel("amplitude")
    row[0].legend(frameon=False, fontsize=8)
    return figure


def _curve(axes: Axes, values: Sequence[float], first: int, **options: Any) -> None:
    """Draw values on a logarithmic scale, without those that are not positive and finite."""
    points = [(place, value) for place, value in enumerate(values, first) if 0 < value < math.inf]
    if points:
        axes.semilogy(*zip(*points, strict=True), **options)


def _plane_images(
    figure: Figure,
    row: Sequence[Axes],
    example: Example,
    fields: Sequence[Tensor],
    differences: Sequence[Tensor],
    titles: Sequence[str],
) -> None:
    """Draw fields over a plane, with its first axis to the right and its second one upwards."""
    right, up = example.axes
    turned = ([field.T for field in fields], [difference.T for difference in differences])
    extent = (right.low, right.high, up.low, up.high)
    # Asked for before the colour bars, which give their axes a grid of their own.
    firsts = [spec is not None and spec.is_first_col() for spec in (axes.get_subplotspec() for axes in row)]
    _images(figure, row, *turned, titles, origin="lower", extent=extent)
    for axes, first in zip(row, firsts, strict=True):
        for place, axis in ((axes.xaxis, right), (axes.yaxis, up)):
            place.set_major_locator(MaxNLocator(3))
            place.set_label_text(axis.name, fontsize=_TICKS)
            place.labelpad = 1
        # All of a row have the same axis, and the bars need the place.
        axes.yaxis.set_tick_params(labelleft=first)
        axes.yaxis.label.set_visible(first)


def _images(
    figure: Figure,
    row: Sequence[Axes],
    fields: Sequence[Tensor],
    differences: Sequence[Tensor],
    titles: Sequence[str],
    **options: Any,
) -> None:
    """Draw fields on one colour scale, and each difference on its own scale around zero."""
    low, high = float(fields[0].min()), float(fields[0].max())
    scales: list[dict[str, Any]] = [{"vmin": low, "vmax": high, "cmap": "viridis"}] * len(fields)
    for difference in differences:
        # A diverged rollout is drawn, too: infinity counts as the range of the truth.
        limit = float(difference.abs().nan_to_num(nan=0, posinf=high - low).max()) or 1.0
        scales.append({"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"})
    for axes, values, scale, title in zip(row, (*fields, *differences), scales, titles, strict=True):
        image = axes.imshow(_finite_values(values), **scale, **options)
        figure.colorbar(image, ax=axes, fraction=0.046).ax.tick_params(labelsize=_TICKS)
        axes.set_title(title, fontsize=9)


def _figure(
    rows: int,
    columns: int,
    *,
    width: float,
    height: float,
    gap: float = 0.55,
    right: float = 0.2,
    above: float = 0.3,
) -> tuple[Figure, list[list[Axes]]]:
    """Make a grid of axes; sizes, the gap between columns and the margins are in inches.

    The layout is computed here: matplotlib's automatic layout takes longer than the drawing.
    """
    left, below, between = 0.6, 0.55, 0.5
    size = (width * columns + right, height * rows + above + 0.1)
    across, down = (
        size[0] - left - right - gap * (columns - 1),
        size[1] - above - below - between * (rows - 1),
    )
    figure = Figure(figsize=size, dpi=110)
    figure.subplots_adjust(
        left=left / size[0],
        right=1 - right / size[0],
        bottom=below / size[1],
        top=1 - above / size[1],
        wspace=gap * columns / across,
        hspace=between * rows / down,
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    one: Axes
    for one in axes.flat:
        one.tick_params(labelsize=_TICKS)
    return figure, axes.tolist()


def _finite_values(values: Tensor) -> NDArray[np.float64]:
    """Return the values as an array, with NaN in place of what is not finite."""
    return np.where(values.isfinite().numpy(), values.double().numpy(), np.nan)


def _pick_frames(count: int, limit: int) -> list[int]:
    """Choose up to `limit` of `count` frames, evenly spaced, including the last."""
    return sorted({round((part + 1) * count / limit) - 1 for part in range(limit)} - {-1})


def _join(*words: str) -> str:
    return ", ".join(filter(None, words))
