"""The index of a run's folder: README.md, result.json for programs and a picture of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from vastrun.contract import layout
from vastrun.contract.scores import score_lines
from vastrun.launcher.commands.missing_file import missing_file
from vastrun.launcher.commands.queries import RunRow, with_cost
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.gate.metrics import Curve
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.folder import START_SCRIPT, TRANSCRIPT
from vastrun.launcher.outputs.index import FolderContents
from vastrun.launcher.outputs.store import REPORT
from vastrun.launcher.ui.documents.document import to_text
from vastrun.launcher.ui.documents.runs import ResultFile, RunDocument
from vastrun.launcher.ui.render.amounts import duration, moment, usd
from vastrun.launcher.ui.render.axes import Axis, count_text, linear, logarithmic, wants_logarithm
from vastrun.launcher.ui.render.runs import progress_of
from vastrun.launcher.ui.render.table import facts, short
from vastrun.launcher.ui.render.verdict import on_machines, state_of, verdict_line

README, RESULT, PICTURE = "README.md", "result.json", "loss.svg"
_MAX_CHARACTERS = 300
"""Maximum characters of a text from the machine."""
DESCRIPTIONS: Mapping[str, str] = {
    layout.EVALUATION: "the scores as tables next to trivial baselines, and pictures: `report.md`",
    layout.METRICS: "each measured step as a line of JSON: loss, learning rate, throughput, validation",
    layout.CHECKPOINTS: "complete checkpoints{checkpoints}",
    layout.OUTPUTS: "your own files: those in `$VASTRUN_OUTPUTS` and in the job's `outputs`",
    layout.PROFILES: "traces for https://ui.perfetto.dev, tables of operations, snapshots of GPU memory",
    layout.LOG: "the log of the set-up steps and of all ranks: time, source, text",
    layout.RUN: "evidence and diagnostics, for when something went wrong",
    layout.RAW_LOGS: "the output of each rank, in a file for each",
    layout.STACKS: "the Python stacks of all ranks at a hang",
    layout.TENSORBOARD: "for `tensorboard --logdir`",
    layout.WANDB_FILES: "the files of W&B",
    layout.MLFLOW_FILES: "for `mlflow migrate-filestore --source FOLDER --target sqlite:///mlflow.db`",
}
"""Descriptions of files and folders by their path on the machine, in the order of the page."""


def index_of(run: Run, contents: FolderContents, now: float, nodes: Sequence[Run] = ()) -> dict[str, str]:
    """Return the text of each file of the index, by name. `nodes`: the run's further machines."""
    row = with_cost(run, nodes, now)
    picture = loss_picture(f"{run.job}: loss", f"run {run.id}: {state_of(row)}", contents.curves)
    result = ResultFile(
        run=RunDocument.of(row),
        exit_code=None if row.verdict is None else run.exit_code(),
        scores=contents.scores,
        checkpoint=contents.newest,
        best_checkpoint=contents.best,
        next=advice_for(run, checkpoint=contents.newest is not None, not_shipped=missing_file(run)),
    )
    texts = {README: "\n".join(_page(row, contents, bool(picture), now)), RESULT: to_text(result)}
    return {name: f"{text.rstrip()}\n" for name, text in {**texts, PICTURE: picture}.items() if text}


def _page(row: RunRow, contents: FolderContents, has_picture: bool, now: float) -> Iterator[str]:
    yield f"# Run {row.run.id}: {state_of(row)}\n"
    # Indented as code: nothing in a machine's text becomes a link, a picture or HTML.
    yield from (f"    {line}" for line in _facts(row, contents, now).split("\n"))
    yield f"\n![Loss over the steps]({PICTURE})" if has_picture else ""
    yield "\n| file | description |\n|---|---|"
    yield f"| [`{REPORT}`]({REPORT}) | a page for a browser: proofs, costs, curves, pictures, errors |"
    yield f"| [`{RESULT}`]({RESULT}) | the verdict, its proofs, scores and cost, for programs |"
    if has_picture:
        yield f"| [`{PICTURE}`]({PICTURE}) | the loss over the steps, drawn from the metrics |"
    if contents.has_transcript:
        words = f"the launcher's calls and decisions: `vastrun replay {row.run.id}`"
        yield f"| [`{TRANSCRIPT}`]({TRANSCRIPT}) | {words} |"
    if contents.has_start_script:
        yield f"| [`{START_SCRIPT}`]({START_SCRIPT}) | the script that the machine runs at each start |"
    for path, words in DESCRIPTIONS.items():
        if path in contents.names:
            name = contents.names[path]
            yield f"| [`{name}`]({name}) | {words.format(checkpoints=_checkpoints(contents))} |"
    yield "\n## What you can do\n"
    yield from (f"- {words}: `{command}`" for words, command in _commands(row.run, contents))
    if contents.wandb:
        yield "\n## W&B\n"
        yield "This run was recorded offline. To upload it to W&B, run in this folder, after `wandb login`:\n"
        yield f"    wandb sync {' '.join(contents.wandb)}"


def _facts(row: RunRow, contents: FolderContents, now: float) -> str:
    run = row.run
    scores = [short(one_line(line), _MAX_CHARACTERS) for line in score_lines(contents.scores)]
    return facts(
        [
            ("job", short(one_line(run.job), _MAX_CHARACTERS)),
            (
                "verdict" if run.phase is Phase.ENDED else "state",
                short(one_line(verdict_line(row)), _MAX_CHARACTERS),
            ),
            ("score", "\n".join(scores[:20])),
            ("step", progress_of(run)),
            ("duration", duration((run.ended_at or now) - run.created_at)),
            ("cost", f"{usd(row.usd)}{on_machines(row)}"),
            ("W&B", short(one_line(contents.wandb_url), _MAX_CHARACTERS)),
            ("written", moment(now)),
        ]
    )


def _checkpoints(contents: FolderContents) -> str:
    names = [f"newest: `{contents.newest}`"] if contents.newest else []
    names += [f"best: `{contents.best}`"] if contents.best else []
    return "; " + ", ".join(names) if names else ""


def _commands(run: Run, contents: FolderContents) -> Iterator[tuple[str, str]]:
    """Yield useful commands with their purposes."""
    if run.phase is Phase.ENDED:
        yield "Explain how it ended, with all proofs", f"vastrun why {run.id}"
    else:
        yield "This run has not ended", f"vastrun attach {run.id}"
    yield "Read the log with times", f"vastrun logs {run.id} --timestamps"
    if contents.newest:
        yield "Continue from the newest checkpoint", f"vastrun launch --from {run.id}"
    if contents.newest and contents.is_training:
        yield "Write the weights to one file", f"vastrun export {run.id} --to weights.safetensors"


_WIDTH, _HEIGHT = 800, 450
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 24, 84, 56
_COLORS = ("#2f7ed8", "#e0701d", "#3a9a5b")
"""Colours that the colour-blind can distinguish, visible on white and on black."""
_MAX_MARKED = 60
"""Maximum points of a curve on which each point is marked."""
_MAX_TITLE_CHARACTERS = 80
_GRID, _AXIS = 'class="grid" stroke="#d8dee4"', 'class="axis" stroke="#8c959f"'
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}"
    ".faint{fill:#59636e}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}.paper{fill:#ffffff}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}"
    ".grid{stroke:#2f353d}.axis{stroke:#656c76}.paper{fill:#0d1117}}"
)


def loss_picture(title: str, below: str, curves: Sequence[Curve]) -> str:
    """Draw the curves under a title and a subtitle, as SVG; empty without points."""
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return ""
    values = [value for curve in drawn for _, value in curve.points]
    steps = [step for curve in drawn for step in (*(step for step, _ in curve.points), *curve.lost)]
    is_log = wants_logarithm(values)
    x = linear(min(steps), max(steps), _LEFT, _WIDTH - _RIGHT, whole=True)
    y = (logarithmic if is_log else linear)(min(values), max(values), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        *_frame(title, below),
        *_grid(x, y, "loss (logarithmic)" if is_log else "loss"),
        *(part for number, curve in enumerate(drawn) for part in _line(curve, _COLORS[number], x, y)),
        *_legend(drawn),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(title: str, below: str) -> Iterator[str]:
    title, below = (_text(text) for text in (title, below))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    )
    yield f"<title>{title}: {below}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ffffff"/>'
    yield f'<text x="{_LEFT}" y="30" font-size="17" font-weight="600">{title}</text>'
    yield f'<text class="faint" x="{_LEFT}" y="50" font-size="12">{below}</text>'


def _text(text: str) -> str:
    text = one_line(text)
    return escape(text if len(text) <= _MAX_TITLE_CHARACTERS else text[: _MAX_TITLE_CHARACTERS - 1] + "…")


def _grid(x: Axis, y: Axis, label: str) -> Iterator[str]:
    bottom, right, middle = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, (_TOP + _HEIGHT - _BOTTOM) / 2
    for value in y.ticks:
        at = y.place(value)
        yield f'<line {_GRID} x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield (
            f'<text class="faint" x="{_LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end">'
            f"{value:.4g}</text>"
        )
    yield f'<line {_AXIS} x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    for value in x.ticks:
        at = x.place(value)
        yield f'<line {_AXIS} x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        yield (
            f'<text class="faint" x="{at:.1f}" y="{bottom + 20}" font-size="12" text-anchor="middle">'
            f"{count_text(value)}</text>"
        )
    yield (
        f'<text class="faint" x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 12}" font-size="13" '
        'text-anchor="middle">step</text>'
    )
    yield (
        f'<text class="faint" x="20" y="{middle:.1f}" font-size="13" text-anchor="middle" '
        f'transform="rotate(-90 20 {middle:.1f})">{label}</text>'
    )


def _line(curve: Curve, color: str, x: Axis, y: Axis) -> Iterator[str]:
    places = [(x.place(step), y.place(value)) for step, value in curve.points]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>'
    if len(places) <= _MAX_MARKED:
        yield from (
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.5" fill="{color}"/>' for across, down in places
        )
    for step in curve.lost:
        cross = f"M{x.place(step) - 4:.1f} {_TOP - 4}l8 8m0 -8l-8 8"
        yield f'<path d="{cross}" stroke="{color}" stroke-width="2" fill="none"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    at = _LEFT
    for curve, color in zip(curves, _COLORS, strict=False):
        parts = [curve.name]
        parts += [f"mean of {curve.averaged} values each"] if curve.averaged > 1 else []
        parts += ["x: not finite"] if curve.lost else []
        name = ", ".join(parts)
        yield f'<rect x="{at}" y="62" width="18" height="4" rx="2" fill="{color}"/>'
        yield f'<text x="{at + 24}" y="68" font-size="12">{name}</text>'
        at += 44 + 7 * len(name)
