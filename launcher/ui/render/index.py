"""The index of a run's folder: README.md, and result.json for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vastrun.contract import layout
from vastrun.contract.records import as_json
from vastrun.launcher.commands.explanation import missing_file
from vastrun.launcher.commands.queries import RunRow, with_cost
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.runs import CodeRecord
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.decisions.comparison import chosen_values
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.folder import CODE_PATCH, CODE_RECORD, START_SCRIPT, TRANSCRIPT, Outputs
from vastrun.launcher.outputs.index import FolderContents, contents_of, log_head
from vastrun.launcher.outputs.store import REPORT
from vastrun.launcher.ui.document import to_text
from vastrun.launcher.ui.render.amounts import duration, facts, moment, short
from vastrun.launcher.ui.render.loglines import machine_lines
from vastrun.launcher.ui.render.runs import ResultFile, RunDocument, progress_of
from vastrun.launcher.ui.render.verdict import cost_text, on_machines, state_of, verdict_line

README, RESULT = "README.md", "result.json"
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


def index_of(
    run: Run, now: float, nodes: Sequence[Run] = (), code: CodeRecord | None = None, patch: bytes = b""
) -> dict[str, str | bytes]:
    """Return the text of each file of the index, by name.

    `nodes`: the run's further machines. `code`, `patch`: what was shipped. Raises OSError.
    """
    row, contents = with_cost(run, nodes, now), contents_of(run, DESCRIPTIONS)
    outputs = Outputs(run)
    outcome = outputs.outcome()
    result = ResultFile(
        run=RunDocument.of(row),
        exit_code=None if row.verdict is None else run.exit_code(),
        scores=contents.scores,
        checkpoint=contents.newest,
        best_checkpoint=contents.best,
        next=advice_for(run, checkpoint=contents.newest is not None, not_shipped=missing_file(run)),
        code=None if code is None else code.origin,
        code_digest=None if code is None else code.digest,
        job=chosen_values(read_job(run.spec_json)),
        machine=machine_lines(log_head(outputs)),
        packages=None if outcome is None else outcome.packages,
    )
    written = {README: "\n".join(_page(row, contents, now)), RESULT: to_text(result)}
    texts: dict[str, str | bytes] = {name: f"{text.rstrip()}\n" for name, text in written.items()}
    if code is not None:
        texts[CODE_RECORD] = as_json(code)
    return {**texts, CODE_PATCH: patch} if patch else texts


def _page(row: RunRow, contents: FolderContents, now: float) -> Iterator[str]:
    yield f"# Run {row.run.id}: {state_of(row)}\n"
    # Indented as code: nothing in a machine's text becomes a link, a picture or HTML.
    yield from (f"    {line}" for line in _facts(row, contents, now).split("\n"))
    yield "\n| file | description |\n|---|---|"
    yield f"| [`{REPORT}`]({REPORT}) | a page for a browser: proofs, costs, curves, pictures, errors |"
    yield f"| [`{RESULT}`]({RESULT}) | the verdict, its proofs, scores and cost, for programs |"
    if contents.has_transcript:
        words = "the launcher's calls to the provider and the machine"
        yield f"| [`{TRANSCRIPT}`]({TRANSCRIPT}) | {words} |"
    if contents.has_start_script:
        yield f"| [`{START_SCRIPT}`]({START_SCRIPT}) | the script that the machine runs at each start |"
    if read_job(row.run.spec_json).code_digest is not None:
        yield f"| [`{CODE_RECORD}`]({CODE_RECORD}) | the code as it was submitted: commit, files, digests |"
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
    lines = program_of(read_job(run.spec_json)).score_lines(contents.scores)
    scores = [short(one_line(line), _MAX_CHARACTERS) for line in lines]
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
            ("cost", f"{cost_text(row)}{on_machines(row)}"),
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
    if contents.can_export:
        yield "Write the weights to one file", f"vastrun export {run.id} --to weights.safetensors"
