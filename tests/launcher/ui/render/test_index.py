"""The index of a run's folder: what is there in words, the result for programs, the loss as a picture."""

from __future__ import annotations

import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.documents import hold
from tests.fakebox import Training
from tests.launcher.terminal import CRASH, HANG, Terminal
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, WandbRun
from vastrun.launcher.core import Run
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.metrics import POINTS, Curve, parse_curves
from vastrun.launcher.outputs.index import INDEXED_PATHS
from vastrun.launcher.ui.render.index import DESCRIPTIONS, loss_picture

METRICS = b"".join(b'{"step": %d, "loss": %f}\n' % (step, 1 / (step + 1)) for step in range(10))
WANDB = "offline-run-20260102_030405-calm-heron-3f1a"
LEAVES = {
    layout.METRICS: METRICS,
    f"{layout.EVALUATION}/report.md": b"# Report\n",
    f"{layout.OUTPUTS}/mine.txt": b"mine",
    f"{layout.RAW_LOGS}/rank-0.log": b"step 1\n",
    f"{layout.WANDB_FILES}/{WANDB}/run.wandb": b"",
    f"{layout.WANDB_FILES}/offline-run-20260102_030405-x; rm -rf $HOME/run.wandb": b"",
    f"{layout.WANDB_FILES}/debug.log": b"",
}
RICH = Training(leaves=LEAVES)


def page(terminal: Terminal, folder: str = "out") -> str:
    return (terminal.folder / folder / "README.md").read_text()


def result(terminal: Terminal) -> Any:
    return json.loads((terminal.folder / "out" / "result.json").read_text())


def newest(terminal: Terminal) -> Run:
    return terminal.ledger.runs()[0]


def test_on_top_is_what_the_user_wants_and_the_rest_lies_in_one_folder(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    on_top = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    assert on_top == {
        *("README.md", "result.json", "loss.svg", "report.html", "metrics.jsonl", "log.txt"),
        *("report", "checkpoints", "outputs", "details", "transcript.jsonl"),
    }
    told = page(terminal)
    assert all(f"]({name})" in told for name in on_top - {"README.md"})
    assert "](profile)" not in told, "there is none"


def test_the_page_says_how_it_ended_what_is_there_and_what_to_type(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    run, told = newest(terminal), page(terminal)
    assert told.startswith(f"# Run {run.id}: SUCCEEDED\n\n    job       demo\n    verdict   SUCCEEDED\n")
    assert "![Loss over the steps](loss.svg)" in told
    assert "newest: `step-000010`" in told
    assert f"`vastrun launch --from {run.id}`" in told
    assert f"`vastrun export {run.id} --to weights.safetensors`" in told


def test_the_page_says_how_to_send_the_offline_run_to_wandb(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    assert f"\n    wandb sync details/wandb/{WANDB}\n" in page(terminal)
    assert (tmp_path / "out" / "details" / "wandb" / WANDB).is_dir()
    assert "rm -rf" not in page(terminal)


def test_the_result_is_what_launch_prints(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    printed = json.loads(terminal.launch("--json").stdout)
    told = result(terminal)
    hold("result", told)
    assert {key: told[key] for key in told.keys() & printed.keys()} == {
        key: printed[key] for key in told.keys() & printed.keys()
    }
    assert {"run", "exit_code", "scores", "next", "schema_version"} <= told.keys() & printed.keys()
    assert told["run"]["verdict"] == "SUCCEEDED"
    assert told["checkpoint"] == "step-000010"


def test_the_result_advises_what_why_does_on_a_file_that_was_not_uploaded(tmp_path: Path) -> None:
    def missed(outcome: Outcome) -> Outcome:
        detail = "FileNotFoundError: [Errno 2] No such file or directory: 'table.bin'"
        return replace(outcome, reason="error", detail=detail)

    code = tmp_path / "code"
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    (code / ".gitignore").write_text("*.bin\n")
    (code / "table.bin").touch()
    terminal = Terminal(tmp_path, Training(outcome=missed, exit_code=1))
    terminal.job.write_text(terminal.job.read_text() + f"code: {{path: {code}}}\n")
    terminal.launch()
    assert "table.bin is ignored by git" in result(terminal)["next"]
    assert result(terminal)["next"] == terminal.document("why", "last")["next"]


def test_a_run_that_was_sent_to_wandb_is_named_with_its_address(tmp_path: Path) -> None:
    def sent(outcome: Outcome) -> Outcome:
        url = "https://wandb.ai/me/demo/runs/calm-heron"
        return replace(outcome, wandb=WandbRun(id="calm-heron", mode="online", state="finished", url=url))

    terminal = Terminal(tmp_path, Training(outcome=sent))
    terminal.launch()
    assert "    W&B       https://wandb.ai/me/demo/runs/calm-heron\n" in page(terminal)
    assert "wandb sync" not in page(terminal)


def test_each_place_that_a_page_may_name_has_its_words() -> None:
    assert sorted(DESCRIPTIONS) == sorted(INDEXED_PATHS)


@pytest.mark.parametrize(("training", "verdict"), [(CRASH, "FAILED"), (HANG, "HUNG")])
def test_a_run_that_failed_has_an_index_of_what_came_home(
    training: Training, verdict: str, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path, replace(training, leaves={layout.METRICS: METRICS}))
    terminal.launch()
    assert page(terminal).startswith(f"# Run {newest(terminal).id}: {verdict}\n")
    assert verdict in (tmp_path / "out" / "loss.svg").read_text()
    assert result(terminal)["run"]["cause"] == newest(terminal).cause


def test_a_run_that_was_stopped_or_lost_has_one_too(tmp_path: Path) -> None:
    stopped, gone = Terminal(tmp_path / "stopped"), Terminal(tmp_path / "lost", Training(seconds=40.0))
    stopped.press(after_s=10)
    stopped.launch()
    gone.at(38, gone.market.vanish)
    gone.launch()
    assert page(stopped).startswith(f"# Run {newest(stopped).id}: STOPPED\n")
    assert page(gone).startswith(f"# Run {newest(gone).id}: LOST\n")
    assert result(gone)["checkpoint"] == "step-000008"


def test_a_folder_says_that_its_run_is_still_open_until_it_ends(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.launch("--detach")
    terminal.clock.sleep(3)
    terminal.type("pull", "last")
    assert f"`vastrun attach {newest(terminal).id}`" in page(terminal)
    terminal.type("attach", "last")
    assert page(terminal).startswith(f"# Run {newest(terminal).id}: SUCCEEDED\n")


def test_pull_writes_it_anew_where_it_pulls_to(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch("--detach")
    terminal.clock.sleep(30)
    (tmp_path / "out" / "README.md").unlink(missing_ok=True)
    terminal.type("pull", "last")
    terminal.type("pull", "last", "--out", str(tmp_path / "copy"))
    assert "loss.svg" in page(terminal)
    assert "loss.svg" in page(terminal, "copy")
    assert (tmp_path / "copy" / "loss.svg").is_file()


def test_a_run_that_brought_nothing_home_leaves_no_index(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.market.impostors = {f"host-{number}" for number in range(9)}
    terminal.launch("--set", "retry={}")
    assert newest(terminal).cause == "host"
    assert not (tmp_path / "out" / "README.md").exists()


def test_a_folder_that_takes_no_index_does_not_change_how_the_run_ended(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.at(10, (tmp_path / "out" / "README.md").mkdir)
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    assert "the pages in its outputs are not up to date: cannot write to" in end.stderr


def test_what_a_box_says_is_code_on_the_page_and_one_short_line(tmp_path: Path) -> None:
    def evil(outcome: Outcome) -> Outcome:
        detail = "<img src=x onerror=alert(1)>\n# [click](https://evil)\x1b[2J" + "x" * 9000
        return replace(outcome, reason="error", detail=detail, scores={"![a](https://evil)": 1.0})

    terminal = Terminal(tmp_path, Training(outcome=evil, exit_code=1))
    terminal.launch()
    lines = page(terminal).split("\n")
    assert any("evil" in line for line in lines)
    assert all(line.startswith("    ") for line in lines if "evil" in line or "<" in line)
    assert max(map(len, lines)) < 400


def curves(*records: object) -> tuple[Curve, ...]:
    return parse_curves(json.dumps(record).encode() + b"\n" for record in records)


def drawn(*records: object, title: str = "job: loss", below: str = "run calm-heron: SUCCEEDED") -> str:
    """The picture, which is well-formed, small, and has all its lines on the paper."""
    text = loss_picture(title, below, curves(*records))
    if text:
        ElementTree.fromstring(text)
        assert len(text) < 100_000
        for points in re.findall(r'points="([^"]*)"', text):
            for across, down in (pair.split(",") for pair in points.split()):
                assert 0 <= float(across) <= 800
                assert 0 <= float(down) <= 450
    return text


def labels(picture: str) -> list[str]:
    return [part.text or "" for part in ElementTree.fromstring(picture).iter() if part.tag.endswith("text")]


def test_a_picture_says_what_it_shows() -> None:
    losses = [{"step": step, "loss": 2.0 / step} for step in range(1, 101)]
    picture = drawn(*losses, {"step": 50, "validation_nrmse": 0.5}, {"step": 100, "validation_nrmse": 0.3})
    assert {"job: loss", "run calm-heron: SUCCEEDED", "training loss", "validation nRMSE"} <= {
        *labels(picture)
    }
    assert {"step", "loss (logarithmic)", "20", "100", "0.1", "1"} <= {*labels(picture)}


def test_losses_of_one_size_have_an_even_axis() -> None:
    assert {"loss", "0.5", "0.6"} <= {*labels(drawn({"step": 0, "loss": 0.5}, {"step": 9, "loss": 0.6}))}


def test_of_many_values_means_are_drawn_and_it_is_said() -> None:
    (curve,) = curves(*({"step": step, "loss": float(step % 2)} for step in range(10 * POINTS)))
    assert (len(curve.points), curve.averaged) == (POINTS, 10)
    assert curve.points[0] == (4.5, 0.5)
    assert "training loss, mean of 10 values each" in labels(loss_picture("", "", (curve,)))


def test_steps_whose_loss_is_no_number_are_marked() -> None:
    picture = drawn({"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": math.nan})
    assert "training loss, x: not finite" in labels(picture)
    assert picture.count("<path") == 2


def test_a_step_that_was_done_again_counts_as_it_was_last() -> None:
    (curve,) = curves({"step": 2, "loss": 9.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0})
    assert curve.points == ((1, 2.0), (2, 1.0))


@pytest.mark.parametrize(
    "values",
    [
        (0.0,),
        (0.0, 5e-324),
        (1.0, 1.0 + 1e-15),
        (-3.0, -3.0, 1e-30),
        (caps.LOSS, -caps.LOSS),
        (caps.LOSS, caps.MIN_LOSS),
        (1e300, 1.0, -1e300),
        (10**400, 2.0),
        (math.inf, -math.inf, 2.0),
        (7,),
    ],
)
def test_whatever_the_values_are_they_are_on_the_paper(values: tuple[float, ...]) -> None:
    assert "<polyline" in drawn(*({"step": step, "loss": value} for step, value in enumerate(values)))
    assert "<polyline" in drawn(*({"step": 10**15 - n, "loss": value} for n, value in enumerate(values)))


@pytest.mark.parametrize(
    "record",
    [
        *([], 3, None, "x", {}, {"step": 1}, {"loss": 1.0}, {"step": "1", "loss": 1.0}),
        *({"step": True, "loss": 1.0}, {"step": 1.5, "loss": 1.0}, {"step": -1, "loss": 1.0}),
        *({"step": 10**30, "loss": 1.0}, {"step": 1, "loss": "low"}, {"step": 1, "loss": True}),
        {"step": 1, "loss": None},
    ],
)
def test_without_a_value_there_is_no_picture(record: object) -> None:
    assert drawn(record) == ""


def test_lines_that_are_no_json_are_passed_over() -> None:
    lines = [b"{", b"[" * 60_000, b"\xff", b"9" * 5000, b'{"step": 1, "loss": ' + b" " * 70_000 + b"1}"]
    assert parse_curves(lines) == ()


def test_no_text_becomes_a_part_of_the_picture() -> None:
    evil = '</title><script>alert(1)</script>&"\x1b[2J\u202e' + "x" * 1000
    picture = drawn({"step": 1, "loss": 1.0}, title=evil, below=evil)
    assert "<script" not in picture
    assert "\x1b" not in picture
    assert "\u202e" not in picture
    assert max(map(len, labels(picture))) <= 80


def test_it_is_readable_on_light_and_on_dark_pages(tmp_path: Path) -> None:
    picture = drawn({"step": 1, "loss": 1.0})
    assert '<rect class="paper" width="800" height="450" rx="6" fill="#ffffff"/>' in picture
    assert "@media (prefers-color-scheme:dark)" in picture
