"""What a file or a workstation says: read where it is sound, refused where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from vastrun_ssh_machines.answers import parse_answer
from vastrun_ssh_machines.machines_file import Workstation, machines_path, read_machines

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import ConfigFileError, UnreachableError, UsageError
from vastrun.launcher.gate.text import printable

BOX = "calm-heron-3f1a.0a0b0c0d"
STEERING = "\x1b[2J\x1b]0;owned\x07"


def test_what_is_honest_is_read() -> None:
    answer = parse_answer(
        f"box {BOX} 1 1795523601 0,3\nbox {BOX[:-1]}e 0 1795523602 -\ndisk 1000000\n@\n", "ada"
    )
    assert [(box.is_armed, box.rented_at, box.gpus) for box in answer.boxes] == [
        (True, 1795523601.0, (0, 3)),
        (False, 1795523602.0, ()),
    ]
    assert answer.free_gb == pytest.approx(1.024)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        f"box {BOX} 1 1 -\n",
        f"box {BOX} 1 1 -\nbox {BOX} 1 2 -\n@\n",
        f"box {BOX} 7 1 -\n@\n",
        f"box {BOX} 1 1\n@\n",
        f"{STEERING}\n@\n",
        "disk -5\n@\n",
        f"disk {'9' * 400}\n@\n",
        "x" * 2_000_000 + "\n@\n",
        "gone\n" * 5000 + "@\n",
    ],
)
def test_a_lie_is_no_answer(printed: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        parse_answer(printed, "ada")
    assert caught.value.cause is Cause.PROVIDER
    assert str(caught.value) == printable(str(caught.value))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["..", "../../etc", "notes", f"{BOX}@x", STEERING, f"x{BOX}" * 9])
def test_a_folder_of_others_is_left_out(name: str) -> None:
    assert parse_answer(f"box {name} 1 1 -\ndisk 5\n@\n", "ada").boxes == ()


@pytest.mark.parametrize("note", ["9999999999999999 -", "-1 -", f"1 {','.join('1' * 500)}", "x y"])
def test_a_note_that_makes_no_sense_says_nothing_and_hides_no_box(note: str) -> None:
    (box,) = parse_answer(f"box {BOX} 1 {note}\n@\n", "ada").boxes
    assert box.name == BOX and box.rented_at < 1e11 and len(box.gpus) <= 64


def test_a_refusal_steers_nothing_and_is_bounded() -> None:
    refused = parse_answer(f"refused {STEERING}{'x' * 5000}\n@\n", "ada").refused
    assert refused == printable(refused)
    assert len(refused) <= 200


def write(folder: Path, text: str) -> Path:
    file = folder / "machines.yaml"
    file.write_text(text)
    return file


def test_a_row_needs_a_name_a_host_and_a_user(tmp_path: Path) -> None:
    file = write(tmp_path, "machines:\n- {name: ada, host: ada.lab.example, user: me}\n")
    assert read_machines(file) == (Workstation(name="ada", host="ada.lab.example", user="me"),)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "machines:\n- {name: Ada, host: '-oProxyCommand=x', port: 0, gpu: 1}\n"
        "- {name: b, host: h, user: u, slots: true, usd_per_hour: .nan, folder: '$(reboot)', host_key: MD5}\n"
        "- 3\n- {name: c, host: h, user: u}\n- {name: c, host: h, user: u}\n",
    )
    with pytest.raises(ConfigFileError) as caught:
        read_machines(file)
    keys = [fault.removeprefix(f"{file}: ").partition(": ")[0] for fault in caught.value.faults]
    assert keys == [
        "machines[0].user", "machines[0].name", "machines[0].host", "machines[0].port", "machines[0].gpu",
        "machines[1].slots", "machines[1].usd_per_hour", "machines[1].folder", "machines[1].host_key",
        "machines[2].name", "two machines are called c",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "machines: []", "machines: {a: 1}", "machines: [", "hosts: [a]"])
def test_a_file_of_another_shape_is_a_fault(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigFileError):
        read_machines(write(tmp_path, text))


def test_a_missing_file_is_an_error_that_says_where_it_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*ssh-machines.yaml"):
        read_machines(machines_path({"XDG_CONFIG_HOME": str(tmp_path)}))
