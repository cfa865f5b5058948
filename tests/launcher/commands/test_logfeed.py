"""The log of a run: of one node as it is, of several as one by time."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock, FakeProvider
from tests.runs import a_run
from vastrun.launcher.api.runs import written_lines
from vastrun.launcher.commands.logfeed import feed_of
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ui.render.loglines import parse_line

RUN = a_run(provider="fake", phase=Phase.ENDED, out_dir="")
LOGS = (
    "100.000 10-check ready\n102.000 rank0 step 1\nno time\n104.000 rank0 step 2\n",
    "101.000 10-check ready\n102.000 rank2 step 1\n" + "".join(f"103.{n:03} rank2 x\n" for n in range(3)),
)


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    """With a run of two nodes, whose logs came home."""
    clock = FakeClock()
    ledger = SqliteLedger(Path(":memory:"), now=clock.now, alive=lambda _: True)
    run = replace(RUN, out_dir=str(tmp_path))
    node = replace(run, id=f"{RUN.id}-n1", leader=RUN.id, node=1, out_dir=str(tmp_path / "node-1"))
    ledger.add(run, members=[node])
    for row, text in zip((run, node), LOGS, strict=True):
        Path(row.out_dir).mkdir(exist_ok=True)
        (Path(row.out_dir) / "log.txt").write_text(text)
    return ledger


def lines(ledger: SqliteLedger, node: int | None = None) -> list[str]:
    feed = feed_of(ledger.get(RUN.id), ledger, FakeProvider(FakeClock()), node)
    found = list(written_lines(feed))
    assert feed.is_finished
    return found


def test_the_logs_of_the_nodes_are_one_by_time_each_line_with_its_node(ledger: SqliteLedger) -> None:
    found = lines(ledger)
    assert found[:5] == [
        "100.000 [n0] 10-check ready",
        "101.000 [n1] 10-check ready",
        "102.000 [n0] rank0 step 1",
        "no [n0] time",
        "102.000 [n1] rank2 step 1",
    ]
    assert found[-1] == "104.000 [n0] rank0 step 2"
    assert len(found) == 9
    line = parse_line(found[1])
    assert line is not None
    assert (line.node, line.source, line.origin) == (1, "10-check", "[n1] 10-check")


def test_one_node_has_its_log_as_it_is(ledger: SqliteLedger) -> None:
    assert [lines(ledger, node) for node in (0, 1)] == [log.splitlines() for log in LOGS]
    with pytest.raises(UsageError, match="has nodes 0 to 1"):
        lines(ledger, 2)
