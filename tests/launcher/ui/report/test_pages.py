"""The pages of runs and batches: what they show, their size, and that text of any origin stays text."""

import hashlib
import json
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.hostile.lie import MARKUP, STEERING
from tests.hostile.lies import PNG
from tests.launcher.terminal import CRASH, HANG, Terminal
from tests.launcher.ui.report.made import NAME, NOW, made_batch
from tests.launcher.ui.report.reading import ASSETS, ReadPage, assert_sound
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, RankEnd
from vastrun.launcher.batch.results import batch_report_of
from vastrun.launcher.core import Phase, Verdict
from vastrun.launcher.gate.metrics import SERIES_POINTS
from vastrun.launcher.ui.report.batch_page import batch_page_file
from vastrun.launcher.ui.report.page import TONES, Html, data_block, element, joined, text
from vastrun.launcher.ui.report.run_page import page_of

UPLOT = {  # npm pack uplot@1.6.32: dist/uPlot.iife.min.js, dist/uPlot.min.css, LICENSE
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
EACH_GPU = {"gpu0_load": 0.97, "gpu0_power_w": 1312.4, "gpu1_load": 0.25, "gpu1_temperature_c": 71.0}
METRICS = b"".join(
    json.dumps(
        {"step": step, "loss": 2 / (step + 1), "lr": 0.01, "gpu_power_w": 300.0, "mine": step, **EACH_GPU}
    ).encode()
    + b"\n"
    for step in range(0, 1000, 2)
)
RICH = Training(leaves={layout.METRICS: METRICS, f"{layout.EVALUATION}/burgers-fields.png": PNG})
LOG = """\
1.000 10-check-gpu GPU 0: RTX 4090, 24 GB
2.000 rank0 step 3
2.100 rank1 step 3
2.200 rank1 Traceback (most recent call last):
2.300 rank1   File "train.py", line 7, in <module>
2.400 rank1 KeyError: 'burgers'
2.500 rank0 ended by rank 1
"""


def failed(outcome: Outcome) -> Outcome:
    """The outcome of a training whose rank 1 raised an exception."""
    rank = RankEnd(
        rank=1, exit_code=1, exception="KeyError: 'burgers'", traceback="Traceback\n  in f\nKeyError"
    )
    return replace(outcome, reason="error", first_failure=rank, ranks=(outcome.ranks[0], rank))


BROKEN = Training(outcome=failed, exit_code=1, leaves={layout.LOG: LOG.encode()})


def page(terminal: Terminal, folder: str = "out") -> ReadPage:
    return assert_sound((terminal.folder / folder / "report.html").read_text())


def shown(read: ReadPage) -> str:
    return " ".join(" ".join(read.shown).split())


def test_the_library_that_draws_is_the_one_that_was_published() -> None:
    assert {name: hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() for name in UPLOT} == UPLOT


def test_every_verdict_has_a_colour() -> None:
    assert set(TONES) == {*Verdict, None}


def test_each_run_writes_its_page_beside_its_outputs(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    read, run = page(terminal), terminal.ledger.runs()[0]
    point_text = shown(read)
    assert run.id in point_text and "SUCCEEDED" in point_text
    assert all(proof.text in point_text for proof in run.proofs)
    for phase in ("plan", "rent", "boot", "ship", "train", "collect", "destroy"):
        assert phase in point_text
    assert "train.steps: 10" in point_text
    assert [attributes["alt"] for attributes in read.of("img")] == ["burgers fields"]


def test_curves_are_drawn_from_data_in_the_page(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    read = page(terminal)
    drawn = {one["name"]: one for data in read.data.values() for one in data["series"]}
    assert {"training", "rate", "all GPUs", "mine"} <= set(drawn)
    assert len(drawn["training"]["x"]) == len(drawn["training"]["y"]) <= SERIES_POINTS
    figures = [attributes["data-chart"] for attributes in read.of("figure") if "data-chart" in attributes]
    assert set(figures) == set(read.data)
    assert all(label["aria-label"] for label in read.of("div") if label.get("role") == "img")


def test_each_gpu_has_a_line_in_the_charts_of_its_metrics(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, RICH)
    terminal.launch()
    read = page(terminal)
    assert "Load of each GPU, share GPU 0: 0.97; GPU 1: 0.25" in shown(read)
    assert "Power of each GPU, W GPU 0: 1,312" in shown(read)
    lines = [[one["name"] for one in data["series"]] for data in read.data.values()]
    assert [names for names in lines if names[0].startswith("GPU ")] == [
        ["GPU 0", "GPU 1"],
        ["GPU 0"],
        ["GPU 1"],
    ]


def test_curves_of_many_gpus_are_few_and_means(tmp_path: Path) -> None:
    steps = [{"step": step, **{f"gpu{n}_load": n / 20 for n in range(20)}} for step in range(200)]
    text = "".join(f"{json.dumps(line)}\n" for line in steps)
    terminal = Terminal(tmp_path, Training(leaves={layout.METRICS: text.encode()}))
    terminal.launch()
    (chart,) = page(terminal).data.values()
    assert [one["name"] for one in chart["series"]] == [f"GPU {n}" for n in range(16)]
    assert all(len(one["x"]) == len(one["y"]) <= 60 for one in chart["series"])
    assert chart["series"][3]["y"][0] == 0.15 and chart["series"][0]["x"][:2] == [1.5, 5.5]


def test_the_page_of_a_failure_marks_the_error_in_the_log(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, BROKEN)
    terminal.launch()
    read = page(terminal)
    marked = read.text[read.text.index("<mark>") : read.text.index("</mark>")]
    assert marked == "<mark>KeyError: &#x27;burgers&#x27;"
    point_text = shown(read)
    assert "Rank 1 failed first" in point_text and "RTX 4090, 24 GB" in point_text and "Next:" in point_text


@pytest.mark.parametrize(
    ("training", "words"), [(CRASH, "SIGSEGV"), (HANG, "made no progress for 1m 01s at step 7 (forward)")]
)
def test_the_page_says_why_a_run_failed(training: Training, words: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, training)
    terminal.launch()
    assert words in shown(page(terminal))


def test_pictures_that_the_page_has_no_room_for_are_named(tmp_path: Path) -> None:
    leaves = {f"{layout.EVALUATION}/{name}.png": padded(90_000) for name in ("a", "b", "c", "d")}
    terminal = Terminal(tmp_path, Training(leaves=leaves))
    terminal.launch()
    read = page(terminal)
    shown_ones = [attributes["alt"] for attributes in read.of("img")]
    assert shown_ones == ["a", "b"]
    assert "c.png, d.png, in" in shown(read)


@pytest.mark.slow
def test_a_page_with_much_of_everything_is_not_larger_and_made_within_a_second(tmp_path: Path) -> None:
    def talkative(outcome: Outcome) -> Outcome:
        rank = RankEnd(rank=1, exit_code=1, exception="x" * 900, traceback=f"{'y' * 180}\n" * 100)
        scores = {f"{'score' * 30}{number}": 1 / 7 for number in range(900)}
        return replace(outcome, reason="error", detail="z" * 900, first_failure=rank, scores=scores)

    numbers = {f"{'name' * 12}{number}": number / 7 for number in range(60)}
    metrics = "".join(json.dumps({"step": step, "loss": 1.0, **numbers}) + "\n" for step in range(2500))
    log = "".join(f"{line}.000 rank1 Error: {'w' * 900}\n" for line in range(3000))
    leaves = {f"{layout.EVALUATION}/{number}.png": padded(20_000) for number in range(30)}
    texts = {layout.METRICS: metrics.encode(), layout.LOG: log.encode()}
    terminal = Terminal(tmp_path, Training(outcome=talkative, exit_code=1, leaves=leaves | texts))
    terminal.launch()
    run, began = terminal.ledger.runs()[0], time.process_time()
    text = page_of(terminal.ledger, run, terminal.clock.now())
    assert time.process_time() - began < 1.0
    assert len(assert_sound(text).of("img")) >= 3


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 1)
    begun = replace(
        ledger.runs()[0], id="new", phase=Phase.PLAN, rented_at=None, ended_at=None, out_dir="/no"
    )
    ledger.add(replace(begun, released_at=None, cause=None, step=0, steps=0))
    point_text = shown(assert_sound(page_of(ledger, ledger.get("new"), NOW)))
    assert "Next: still running" in point_text and "plan (no launcher)" in point_text


def padded(size: int) -> bytes:
    """A picture with so many bytes, more than it needs."""
    data = bytes(size)
    extra = len(data).to_bytes(4) + b"IDAT" + data + zlib.crc32(b"IDAT" + data).to_bytes(4)
    return PNG[:-12] + extra + PNG[-12:]


def test_the_page_of_a_batch_has_a_row_and_a_curve_for_each_point(tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 30)
    read = assert_sound(batch_page_file(batch_report_of(ledger, NAME, NOW), tmp_path))
    rows = [attributes for attributes in read.of("tr") if "data-point" in attributes]
    assert {row["data-point"] for row in rows} == {str(number) for number in range(1, 31)}
    (data,) = read.data.values()
    assert len(data["curves"]) == 30 and len(data["x"]) <= SERIES_POINTS
    assert all(len(curve) == len(data["x"]) for curve in data["curves"])
    assert [name["aria-sort"] for name in read.of("th") if "aria-sort" in name] == ["ascending"]


@pytest.mark.parametrize("points", [0, 1, 2])
def test_a_batch_of_few_points_has_a_page(points: int, tmp_path: Path) -> None:
    assert_sound(batch_page_file(batch_report_of(made_batch(tmp_path, points), NAME, NOW), tmp_path))


@pytest.mark.slow
def test_the_page_of_a_thousand_points_is_below_five_megabytes(tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 1000, steps=400)
    read = assert_sound(batch_page_file(batch_report_of(ledger, NAME, NOW), tmp_path), 5_000_000)
    (data,) = read.data.values()
    assert len(data["curves"]) == 1000 and len(data["x"]) == SERIES_POINTS


HOSTILE = (MARKUP, STEERING, "\ud800", "a&amp;b", "<!--", "]]>", "\u2028", "'\"`=")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_is_a_tag_or_leaves_its_attribute(hostile: str) -> None:
    read = ReadPage(element("p", hostile, title=hostile))
    assert [tag for tag, _ in read.tags] == ["p"]
    assert set(read.tags[0][1]) == {"title"}
    assert not any(c in element("p", hostile) for c in "\x1b\u202e\u2028\ud800")


def test_what_is_markup_stays_so_and_what_is_text_does_not() -> None:
    assert element("p", element("b", "x"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"
    assert joined("<", None, 3) == "&lt;3"
    assert isinstance(text("x"), Html)
    assert element("details", open=True, id=None, hidden=False) == "<details open></details>"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_data_ends_the_block_that_it_is_in(hostile: str) -> None:
    block = data_block("d", {hostile: [hostile, 1.5, None]})
    assert block.isascii()
    assert block.count("<") == 2
    read = ReadPage(block)
    (names,) = read.data["d"].items()
    assert names[1][1:] == [1.5, None]


def test_no_data_holds_a_number_that_is_none() -> None:
    with pytest.raises(ValueError, match="JSON"):
        data_block("d", [float("nan")])
