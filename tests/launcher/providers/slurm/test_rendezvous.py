"""The port where the nodes of a Slurm job meet, as the batch script chooses it on the first of them."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import vastrun.launcher.providers.slurm

SCRIPT = Path(vastrun.launcher.providers.slurm.__file__).with_name("scripts") / "job.sh"
PORTS = 3
"""Of one run: the rendezvous, the supervisors' and the ranks' own."""
FIRST_EPHEMERAL = 32_768
"""From here on Linux hands ports out to whoever connects."""
CHOOSE = r"""
eval "$(sed -n '/^is_free()/p; /^choose_rendezvous()/,/^}/p' "$1")"
instances=(first) folder=$2
shift 2
for seed; do RANDOM=$seed; choose_rendezvous; cat "$folder/first/.rendezvous"; done
"""


def chosen(folder: Path, *seeds: int) -> list[int]:
    """The port for each seed of bash's random numbers."""
    (folder / "first").mkdir(exist_ok=True)
    words = ["bash", "-c", CHOOSE, "bash", str(SCRIPT), str(folder), *map(str, seeds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return [int(line.rpartition(":")[2]) for line in done.stdout.split()]


def test_no_port_of_a_run_is_one_that_the_kernel_hands_out_or_that_of_another_run(tmp_path: Path) -> None:
    ports = chosen(tmp_path, *range(1, 101))
    assert len(set(ports)) > 50
    assert all(1024 <= port <= FIRST_EPHEMERAL - PORTS for port in ports)
    assert len({port % PORTS for port in ports}) == 1


def test_each_port_of_a_run_is_free(tmp_path: Path) -> None:
    (port,) = chosen(tmp_path, 7)
    for number in range(PORTS):
        with socket.create_server(("127.0.0.1", port + number)):
            assert chosen(tmp_path, 7) != [port], number
    assert chosen(tmp_path, 7) == [port]
