"""The index of a run's folder: what is there in words, and the result for programs."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.documents import hold
from tests.fakebox import Training
from tests.launcher.terminal import CRASH, HANG, Terminal
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, WandbRun
from vastrun.launcher.core import Run

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
        *("README.md", "result.json", "report.html", "metrics.jsonl", "log.txt"),
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


@pytest.mark.parametrize(("training", "verdict"), [(CRASH, "FAILED"), (HANG, "HUNG")])
def test_a_failed_run_has_an_index_of_its_outputs(training: Training, verdict: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(training, leaves={layout.METRICS: METRICS}))
    terminal.launch()
    assert page(terminal).startswith(f"# Run {newest(terminal).id}: {verdict}\n")
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


def test_a_folder_says_that_its_run_is_still_open_until_it_ends(terminal: Terminal) -> None:
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
    assert "metrics.jsonl" in page(terminal)
    assert "metrics.jsonl" in page(terminal, "copy")
    assert (tmp_path / "copy" / "result.json").is_file()


def test_a_run_that_brought_nothing_home_leaves_no_index(terminal: Terminal) -> None:
    terminal.market.impostors = {f"host-{number}" for number in range(9)}
    terminal.launch("--set", "retry={}")
    assert newest(terminal).cause == "host"
    assert not (terminal.folder / "out" / "README.md").exists()


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
