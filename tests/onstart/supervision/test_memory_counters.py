"""The kernel's counters of memory, of cgroup v2, v1 and without any."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vastrun.contract import layout
from vastrun.onstart.supervision import reading as memory_counters

GIB = 1 << 30
V2_OWN = {
    "proc/self/cgroup": "0::/job/step\n",
    "cgroup/job/step/memory.events": "low 0\noom 4\noom_kill 3\n",
    "cgroup/job/step/memory.peak": f"{5 * GIB}\n",
    "cgroup/job/step/memory.max": f"{6 * GIB}\n",
    "cgroup/memory.events": "oom_kill 9\n",
}
V2_CONTAINER = {
    "proc/self/cgroup": "0::/of/the/host\n",
    "cgroup/memory.events": "oom_kill 2\n",
    "cgroup/memory.peak": f"{GIB}\n",
    "cgroup/memory.max": "max\n",
}
V1 = {
    "proc/self/cgroup": "5:cpu:/\n4:memory:/job\n0::/\n",
    "cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
    "cgroup/memory/job/memory.max_usage_in_bytes": f"{GIB}\n",
    "cgroup/memory/job/memory.limit_in_bytes": f"{2 * GIB}\n",
}
V1_UNLIMITED = V1 | {"cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n"}
NONE = {"proc/vmstat": "nr_free_pages 1\noom_kill 5\n"}
TORN = {"proc/self/cgroup": "what\n", "cgroup/memory.events": "oom_kill\n", "proc/vmstat": "oom_kill many\n"}


def write(folder: Path, files: Mapping[str, str]) -> tuple[Path, Path, Path]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder, folder / "proc", folder / "cgroup"


@pytest.mark.parametrize(
    ("files", "kills", "use"),
    [
        (V2_OWN, 3, "peak memory 5.0 GiB of 6.0 GiB"),
        (V2_CONTAINER, 2, ""),
        (V1, 7, "peak memory 1.0 GiB of 2.0 GiB"),
        (V1_UNLIMITED, 7, ""),
        (NONE, 5, ""),
        (TORN, 0, ""),
        ({}, 0, ""),
    ],
)
def test_kills_and_the_peak_are_those_of_the_own_cgroup(
    tmp_path: Path, files: Mapping[str, str], kills: int, use: str
) -> None:
    places = write(tmp_path, files)
    assert memory_counters.memory_kills(*places) == kills
    assert memory_counters.memory_use(*places) == use


def test_kills_by_the_holder_of_a_machine_are_added_and_its_limit_is_the_slots(tmp_path: Path) -> None:
    events = f"oom_kill 1\npeak {4 * GIB}\nlimit {3 * GIB}\n"
    places = write(tmp_path, V2_OWN | {layout.MEMORY_EVENTS: events})
    assert memory_counters.memory_kills(*places) == 4
    assert memory_counters.memory_use(*places) == "peak memory 4.0 GiB of 3.0 GiB"


def test_kills_of_others_on_the_computer_are_left_out_on_request(tmp_path: Path) -> None:
    assert memory_counters.memory_kills(*write(tmp_path / "own", V2_OWN), only_own=True) == 3
    assert memory_counters.memory_kills(*write(tmp_path / "computer", NONE), only_own=True) == 0
