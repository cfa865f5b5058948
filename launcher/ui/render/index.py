"""The index of a run's folder: a page in words, the result for programs and a picture of the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from launcher.commands.queries import RunRow, counted
from launcher.core import Phase, Run
from launcher.decisions.advice import advice_for
from launcher.gate.text import one_line
from launcher.outputs.folder import START_SCRIPT, TRANSCRIPT
from launcher.outputs.index import Contents
from launcher.outputs.store import REPORT
from launcher.ui.documents.document import to_text
from launcher.ui.documents.runs import ResultFile, ShownRun
from launcher.ui.render.amounts import duration, moment, usd
from launcher.ui.render.curve import loss_picture
from launcher.ui.render.runs import progress_of
from launcher.ui.render.summary import on_machines, state_of, verdict_line
from launcher.ui.render.table import facts, short
from trainer.contract import layout
from trainer.contract.scores import lines_of

README, RESULT, PICTURE = "README.md", "result.json", "loss.svg"
_LINE = 300
"""Characters of a text that comes from the box."""
WORDS: Mapping[str, str] = {
    layout.EVALUATION: "the scores as tables beside what has learned nothing, and pictures: `report.md`",
    layout.METRICS: "each measured step as a line of JSON: loss, learning rate, throughput, validation",
    layout.CHECKPOINTS: "complete checkpoints{checkpoints}",
    layout.OUTPUTS: "your own files: those in `$VASTRUN_OUTPUTS` and those that the job's `outputs` names",
    layout.PROFILES: "traces for https://ui.perfetto.dev, tables of operations, snapshots of GPU memory",
    layout.LOG: "the log of the set-up steps and of all ranks: time, source, text",
    layout.RUN: "evidence and diagnostics, for when something went wrong",
    layout.RAW_LOGS: "what each rank printed, in a file for each",
    layout.STACKS: "the Python stacks of all ranks at a hang",
    layout.TENSORBOARD: "for `tensorboard --logdir`",
    layout.WANDB_FILES: "the files of W&B",
}
"""What each place holds, by its path on the box, in the order of the page."""


def index_of(run: Run, contents: Contents, now: float, nodes: Sequence[Run] = ()) -> dict[str, str]:
    """Write the index: the text of each of its files, by name. `nodes`: the run's further ones."""
    row = counted(run, nodes, now)
    picture = loss_picture(f"{run.job}: loss", f"run {run.id}: {state_of(row)}", contents.curves)
    result = ResultFile(
        run=ShownRun.of(row),
        exit_code=None if row.verdict is None else run.exit_code(),
        scores=contents.scores,
        checkpoint=contents.newest,
        best_checkpoint=contents.best,
        next=advice_for(run, checkpoint=contents.newest is not None),
    )
    texts = {README: "\n".join(_page(row, contents, bool(picture), now)), RESULT: to_text(result)}
    return {name: f"{text.rstrip()}\n" for name, text in {**texts, PICTURE: picture}.items() if text}


def _page(row: RunRow, contents: Contents, has_picture: bool, now: float) -> Iterator[str]:
    yield f"# Run {row.run.id}: {state_of(row)}\n"
    # Indented: within code, nothing that a box says is a link, a picture or HTML.
    yield from (f"    {line}" for line in _facts(row, contents, now).split("\n"))
    yield f"\n![Loss over the steps]({PICTURE})" if has_picture else ""
    yield "\n| here | what it is |\n|---|---|"
    yield f"| [`{REPORT}`]({REPORT}) | a page for a browser: proofs, costs, curves, pictures, errors |"
    yield f"| [`{RESULT}`]({RESULT}) | the verdict, its proofs, scores and cost, for programs |"
    if has_picture:
        yield f"| [`{PICTURE}`]({PICTURE}) | the loss over the steps, drawn from the metrics |"
    if contents.has_transcript:
        words = f"what was asked and decided: `vastrun replay {row.run.id}`"
        yield f"| [`{TRANSCRIPT}`]({TRANSCRIPT}) | {words} |"
    if contents.has_start_script:
        yield f"| [`{START_SCRIPT}`]({START_SCRIPT}) | what the machine was sent to run at each start |"
    for path, words in WORDS.items():
        if path in contents.names:
            name = contents.names[path]
            yield f"| [`{name}`]({name}) | {words.format(checkpoints=_checkpoints(contents))} |"
    yield "\n## What you can do\n"
    yield from (f"- {words}: `{command}`" for words, command in _commands(row.run, contents))
    if contents.wandb:
        yield "\n## W&B\n"
        yield "This run was recorded offline. To send it to W&B, type in this folder, after `wandb login`:\n"
        yield f"    wandb sync {' '.join(contents.wandb)}"


def _facts(row: RunRow, contents: Contents, now: float) -> str:
    run = row.run
    scores = [short(one_line(line), _LINE) for line in lines_of(contents.scores)]
    return facts(
        [
            ("job", short(one_line(run.job), _LINE)),
            ("verdict" if run.phase is Phase.ENDED else "state", short(one_line(verdict_line(row)), _LINE)),
            ("score", "\n".join(scores[:20])),
            ("step", progress_of(run)),
            ("duration", duration((run.ended_at or now) - run.created_at)),
            ("cost", f"{usd(row.usd)}{on_machines(row)}"),
            ("W&B", short(one_line(contents.wandb_url), _LINE)),
            ("written", moment(now)),
        ]
    )


def _checkpoints(contents: Contents) -> str:
    told = [f"newest: `{contents.newest}`"] if contents.newest else []
    told += [f"best: `{contents.best}`"] if contents.best else []
    return "; " + ", ".join(told) if told else ""


def _commands(run: Run, contents: Contents) -> Iterator[tuple[str, str]]:
    """What to type, and what for."""
    if run.phase is Phase.ENDED:
        yield "Read how it ended, with all proofs", f"vastrun why {run.id}"
    else:
        yield "This run has not ended", f"vastrun attach {run.id}"
    yield "Read the log with times", f"vastrun logs {run.id} --timestamps"
    if contents.newest:
        yield "Continue from the newest checkpoint", f"vastrun launch --from {run.id}"
    if contents.newest and contents.is_training:
        yield "Write the weights to one file", f"vastrun export {run.id} --to weights.safetensors"
