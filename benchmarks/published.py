"""`python -m benchmarks.published`: train on files of PDEBench, and put each error beside the published ones.

By the installed command, one run for each file, on the provider that is named. Each run that succeeds writes
its row of the table in docs/evaluation.md; with `--set` nothing is written, as that is another training.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vastrun.trainer.evaluation.evaluation import WHOLE

PAGE = Path("docs/evaluation.md")
OUT = Path("runs/published")
BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"
_COLUMNS = (
    "file",
    "published FNO",
    "tuned again",
    "**here**",
    "lowest floor",
    "steps",
    "hours",
    "dollars",
    "on",
)
_DARUS = "https://darus.uni-stuttgart.de/api/access/datafile"
_FLOORS = ("persistence", "spatial_mean", "training_mean", "linear_map", "kernel_ridge")


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file of PDEBench, and the nRMSE of a Fourier neural operator on it."""

    name: str
    job: str
    """The job file in configs/."""
    task: str
    published: float
    """In the paper's table (arXiv 2210.07182, version 7)."""
    tuned: float
    """The same model when others tuned it again on the same file."""
    changes: tuple[str, ...] = ()
    """As given to `--set`."""


def _of_a_line(
    name: str, key: str, pattern: str, value: str, published: float, tuned: float, number: int, md5: str
) -> PublishedFile:
    """One of a problem in one dimension. `number`, `md5`: as PDEBench's list of downloads has them."""
    task = name.lower()
    return PublishedFile(
        name=f"{name}, {key} {value}",
        job=f"pdebench_fno_{task}",
        task=task,
        published=published,
        tuned=tuned,
        changes=(
            f"train.data.{key}s=[{value}]",
            f"data=[{{url: '{_DARUS}/{number}', path: {pattern.format(value)}, md5: '{md5}', max_gb: 8.5}}]",
        ),
    )


_advection = partial(_of_a_line, "advection", "beta", "1D_Advection_Sols_beta{}.hdf5")
_burgers = partial(_of_a_line, "Burgers", "nu", "1D_Burgers_Sols_Nu{}.hdf5")

FILES = (
    _advection("0.1", 0.0077, 0.0033, 255672, "b4be2fc3383f737c76033073e6d2ccfb"),
    _advection("0.4", 0.010, 0.0046, 255674, "d595bbfd2c659df995a93cd40d6ea568"),
    _advection("1.0", 0.0097, 0.0047, 255675, "1fe41923a4123db55bf4e89bea32e142"),
    _burgers("0.001", 0.029, 0.0108, 268190, "44cb784d5a07aa2b1c864cabdcf625f9"),
    _burgers("0.01", 0.0078, 0.0042, 281363, "e6d9a4f62baf9a29121a816b919e2770"),
    _burgers("0.1", 0.0029, 0.0014, 268185, "660ba1008d3843bf4e28d2895eb607ce"),
    PublishedFile(
        name="Darcy flow, beta 1.0", job="pdebench_fno_darcy", task="darcy", published=0.064, tuned=0.028
    ),
)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What one run came to."""

    nrmse: float
    floor: float
    """The lowest of what is reached without learning."""
    steps: int
    hours: float
    usd: float
    machine: str

    @classmethod
    def of_outputs(cls, outputs: Path, task: str) -> Reached:
        """Read them from the folder with the outputs of a run that succeeded."""
        parts = json.loads((outputs / "report/scores.json").read_text(encoding="utf-8"))[task]["parts"][WHOLE]
        run = json.loads((outputs / "result.json").read_text(encoding="utf-8"))["run"]
        return cls(
            nrmse=parts["rollout"]["nrmse"],
            floor=min(parts[name]["nrmse"] for name in _FLOORS if name in parts),
            steps=run["steps"],
            hours=(run["ended_at"] - run["created_at"]) / 3600,
            usd=run["usd"],
            machine=_machine(run["offer"]),
        )


def main(words: Sequence[str] | None = None) -> None:
    """`words`: those of the command line, unless others are told."""
    options = _parser().parse_args(words)
    if not options.set:
        _write(options.page, "", "")  # a page that cannot be written is told before a dollar is spent
    for file in options.files or FILES:
        row = row_of(file, _train(file, options))
        print(row, flush=True)
        if not options.set:
            _write(options.page, file.name, row)


def _write(page: Path, name: str, row: str) -> None:
    try:
        page.write_text(filled(page.read_text(encoding="utf-8"), name, row), encoding="utf-8")
    except OSError as error:
        sys.exit(f"error: {page}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"error: {page}: {error}")


def filled(page: str, name: str, row: str) -> str:
    """Return the page with this row for the file of that name. Raises ValueError where it has no table."""
    before, begin, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the lines {BEGIN} and {END}, which the table stands between")
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("|")}
    lines = [row if file.name == name else rows.get(file.name, row_of(file, None)) for file in FILES]
    return "\n".join([f"{before}{BEGIN}", *_head(), *lines, f"{END}{after}"])


def row_of(file: PublishedFile, reached: Reached | None) -> str:
    """Return the file's row, in Markdown; None: nobody has trained on it yet."""
    summary = [file.name, f"{file.published:.2g}", f"{file.tuned:.2g}"]
    if reached is None:
        return _line([*summary, "not run", *["-"] * (len(_COLUMNS) - len(summary) - 1)])
    figures = [f"**{reached.nrmse:.2g}**", f"{reached.floor:.2g}", f"{reached.steps:,}"]
    return _line([*summary, *figures, f"{reached.hours:.1f}", f"{reached.usd:.2f}", reached.machine])


def _head() -> list[str]:
    return [_line(_COLUMNS), _line("---" for _ in _COLUMNS)]


def _line(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _machine(offer: dict[str, Any]) -> str:
    return f"{offer['gpus']} x {offer['gpu_name']}" if offer["gpus"] else "a CPU"


def _train(file: PublishedFile, options: argparse.Namespace) -> Reached:
    """The file's job, as a user starts it; its screen is this one."""
    changes = [word for change in (*file.changes, *options.set) for word in ("--set", change)]
    name = re.sub("[^a-z0-9.]+", "-", file.name.lower())
    outputs = options.out / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    vastrun = str(Path(sys.executable).with_name("vastrun"))
    command = [vastrun, "launch", f"configs/{file.job}.yaml", "--provider", options.provider, "--yes"]
    done = subprocess.run([*command, *changes, "--out", str(outputs)])
    if done.returncode:
        sys.exit(f"error: {file.name}: the run ended with exit code {done.returncode}")
    return Reached.of_outputs(outputs, file.task)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=_file, metavar="FILE", help=f"one of {_names()}; all by default"
    )
    parser.add_argument("--provider", default="vast", help="where to train (vast)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as `launch` has it")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where each run's outputs come home ({OUT})")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"the page with the table ({PAGE})")
    return parser


def _file(name: str) -> PublishedFile:
    for file in FILES:
        if file.name == name:
            return file
    raise argparse.ArgumentTypeError(f"expected one of {_names()}, got {name!r}")


def _names() -> str:
    return ", ".join(f"'{file.name}'" for file in FILES)


if __name__ == "__main__":
    main()
