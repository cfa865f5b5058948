"""What a held machine divides: cores, memory and GPUs, in equal parts."""

import os
from pathlib import Path

import pytest

from vastrun.contract import layout
from vastrun.contract.records import write_json
from vastrun.onstart.holding.machine import HeldBox, is_dedicated_container, measure_machine


def machine(units: int, cores: int) -> HeldBox:
    return HeldBox(units=units, cores=tuple(range(cores)), memory_mib=8000)


def test_each_unit_has_cores_of_its_own() -> None:
    four = machine(4, 8)
    assert [four.cores_of([unit]) for unit in range(4)] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert four.cores_of([1, 3]) == (2, 3, 6, 7)


def test_cores_that_do_not_divide_are_all_given_to_somebody() -> None:
    three = machine(3, 8)
    given = [core for unit in range(3) for core in three.cores_of([unit])]
    assert sorted(given) == list(range(8))


def test_with_fewer_cores_than_units_some_units_share_one() -> None:
    assert [machine(4, 2).cores_of([unit]) for unit in range(4)] == [(0,), (0,), (1,), (1,)]


def test_a_slot_may_use_its_share_of_the_memory_or_the_less_that_it_asks_for() -> None:
    assert machine(4, 8).memory_of([0, 1], 0.0) == 4000
    assert machine(4, 8).memory_of([0, 1], 1.0) == 953
    assert machine(4, 8).memory_of([0], 100.0) == 2000


def test_a_machine_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    assert HeldBox.read(tmp_path) is None
    write_json(tmp_path / layout.HELD_MACHINE, vars(machine(4, 8)))
    assert HeldBox.read(tmp_path) == machine(4, 8)


@pytest.mark.parametrize("provider", ["local", "vast", "docker", "toy"])
def test_outside_of_our_containers_nothing_outside_of_the_box_is_noted(provider: str) -> None:
    here = measure_machine(2, 0, {"VASTRUN_PROVIDER": provider, "CONTAINER_ID": "4711"})
    assert not here.is_dedicated
    assert not here.processes
    assert not here.scratch


@pytest.mark.parametrize(
    ("provider", "first", "ours"),
    [
        ("vast", {"PATH": "/bin", "CONTAINER_ID": "4711"}, True),
        ("docker", {"CONTAINER_ID": "4711"}, True),
        ("local", {"CONTAINER_ID": "4711"}, False),
        ("vast", {"CONTAINER_ID": "47110"}, False),
        ("vast", {"CONTAINER_ID": ""}, False),
        ("vast", {}, False),
    ],
)
def test_a_container_is_ours_when_its_first_process_says_so(
    provider: str, first: dict[str, str], ours: bool
) -> None:
    environ = {"VASTRUN_PROVIDER": provider, "CONTAINER_ID": "4711"}
    assert is_dedicated_container(environ, first) is ours
    assert not is_dedicated_container({**environ, "CONTAINER_ID": ""}, first)


def test_gpus_are_those_that_the_machine_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\nprintf '0, GPU-aa, 3\\n1, GPU-bb, 4\\n2, GPU-cc, [N/A]\\n'\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert measure_machine(2, 2, {}).gpus == ("GPU-aa", "GPU-bb")
    assert measure_machine(1, 1, {"CUDA_VISIBLE_DEVICES": "GPU-cc"}).gpus == ("GPU-cc",)
    assert measure_machine(2, 2, {"CUDA_VISIBLE_DEVICES": "1,2"}).gpu_used_mib == (4, 0)
    assert measure_machine(2, 0, {}).gpus == ()
