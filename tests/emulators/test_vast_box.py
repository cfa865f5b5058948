"""Boxes: the real onstart text, an SSH server, and nothing left of them."""

import http.client
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.emulators import ssh_servers
from tests.emulators.asking import Api, ask, rent, row
from tests.emulators.vast import VastEmulator
from tests.parts import require
from tests.waiting import LONGEST_S, eventually

_ONSTART = """\
#!/bin/bash
echo "start of $CONTAINER_ID as $WHO with $GPU_COUNT GPUs, port 22 is $VAST_TCP_PORT_22"
(setsid sleep 4321 &)
sleep 4321
"""


def running(vast: Api, ssh_key: Path | None = None, **body: object) -> int:
    """The id of an instance that runs."""
    instance_id: int = rent(vast, **body)[1]["new_contract"]
    if ssh_key:
        let_in(vast, instance_id, ssh_key)
    eventually(lambda: row(vast, instance_id)["actual_status"] == "running")
    return instance_id


def let_in(vast: Api, instance_id: int, ssh_key: Path) -> None:
    """Attaches the key to the instance."""
    public = {"ssh_key": ssh_key.with_suffix(".pub").read_text()}
    assert ask(vast, "POST", f"/api/v0/instances/{instance_id}/ssh/", public)[0] == 200


def restart(vast: Api, instance_id: int) -> None:
    """Loses its GPU by a low bid, and has it back by a high one."""
    for usd in (0.01, 9.0):
        ask(vast, "PUT", f"/api/v0/instances/bid_price/{instance_id}/", {"client_id": "me", "price": usd})


def ssh(
    address: tuple[str, int], key: Path, command: str, login: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The command's result, as any client gets it. `login`: who runs the emulator, if not said."""
    require("ssh")
    options = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes"]
    options += ["-oLogLevel=ERROR", "-oConnectTimeout=10", "-oIdentitiesOnly=yes"]
    host, port = address
    where = ["-i", str(key), "-p", str(port), f"{login or ssh_servers.user()}@{host}"]
    return subprocess.run(
        ["ssh", *options, *where, command],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        stdin=subprocess.DEVNULL,
    )


def addresses(vast: VastEmulator, instance_id: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """The proxy and the direct address."""
    seen = row(vast, instance_id)
    direct = seen["public_ipaddr"].strip(), int(seen["ports"]["22/tcp"][0]["HostPort"])
    return (seen["ssh_host"], seen["ssh_port"]), direct


def container_log(vast: VastEmulator, instance_id: int, **body: object) -> str:
    """What the logs endpoint leads to; the result needs no key."""
    answer = ask(vast, "PUT", f"/api/v0/instances/request_logs/{instance_id}/", body)[1]
    path = answer["result_url"].removeprefix(vast.url)
    eventually(lambda: ask(vast, "GET", path, key=None)[0] == 200)
    text: str = ask(vast, "GET", path, key=None)[1]
    return text


@dataclass(frozen=True)
class Elsewhere:
    """An emulator in another process."""

    url: str
    account_key: str


def processes_of(instance_id: int) -> list[int]:
    """Everything on this computer that runs in the instance's environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("CONTAINER_ID") == str(instance_id):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_the_onstart_text_runs_on_every_start_with_the_injected_variables(vast: VastEmulator) -> None:
    instance_id = running(vast, onstart=_ONSTART, env={"WHO": "me"}, price=9.0)
    direct = addresses(vast, instance_id)[1][1]
    line = (
        f"start of {instance_id} as me with {row(vast, instance_id)['num_gpus']} GPUs, port 22 is {direct}\n"
    )
    eventually(lambda: container_log(vast, instance_id) == line)
    restart(vast, instance_id)
    eventually(lambda: container_log(vast, instance_id) == line * 2)
    assert container_log(vast, instance_id, tail="1") == line
    assert container_log(vast, instance_id, filter="nothing of the kind") == ""


def test_only_the_keys_of_the_instance_open_it(vast: VastEmulator, ssh_key: Path) -> None:
    instance_id = running(vast)
    proxy = addresses(vast, instance_id)[0]
    assert ssh(proxy, ssh_key, "true").returncode == 255
    let_in(vast, instance_id, ssh_key)
    assert ssh(proxy, ssh_key, "true").returncode == 0


def destroys(instance: int | str) -> str:
    """What a box types to end an instance by its own key: Python, since not every computer has curl."""
    url, key = "os.environ['VAST_URL']", "os.environ['CONTAINER_API_KEY']"
    asks = f"Request({url} + sys.argv[1], method='DELETE', headers={{'Authorization': 'Bearer ' + {key}}})"
    code = f"import os, sys; from urllib.request import Request, urlopen; urlopen({asks})"
    return f'python3 -c "{code}" /api/v0/instances/{instance}/'


def test_who_is_off_line_reaches_nothing_and_boxes_go_on(vast: VastEmulator) -> None:
    text = f"until [ -e go ]; do sleep 0.05; done; {destroys('$CONTAINER_ID')}"
    instance_id = running(vast, onstart=text)
    vast.cut_network(600)
    with pytest.raises(http.client.RemoteDisconnected):
        row(vast, instance_id)
    (vast.folder / f"C.{instance_id}/root/go").touch()
    eventually(lambda: len(vast.instances) == 0)


def test_the_disk_stays_over_a_stop(vast: VastEmulator) -> None:
    assert_the_disk_stays_over_a_stop(vast)


def assert_the_disk_stays_over_a_stop(vast: VastEmulator) -> None:
    instance_id = running(vast, onstart="ls kept 2>&1; touch kept", price=9.0)
    eventually(lambda: "No such file" in container_log(vast, instance_id))
    restart(vast, instance_id)
    eventually(lambda: container_log(vast, instance_id).endswith("\nkept\n"))


def test_a_box_can_end_itself_and_nothing_else_with_its_own_key(vast: VastEmulator) -> None:
    other = running(vast)
    text = f"{destroys(other)}; {destroys('$CONTAINER_ID')}; sleep 4321"
    instance_id = rent(vast, onstart=text)[1]["new_contract"]
    eventually(lambda: instance_id not in [one.id for one in vast.instances])
    assert [one.id for one in vast.instances] == [other]


def test_no_process_and_no_file_is_left_of_a_destroyed_instance(vast: VastEmulator) -> None:
    instance_id = running(vast, onstart=_ONSTART)
    eventually(lambda: len(processes_of(instance_id)) >= 4)
    ask(vast, "DELETE", f"/api/v0/instances/{instance_id}/", {})
    eventually(lambda: not processes_of(instance_id))
    eventually(lambda: not list(vast.folder.iterdir()))


def test_nothing_is_left_of_an_emulator_that_was_closed() -> None:
    with VastEmulator(rate_limits=False) as vast:
        instance_id = running(vast, onstart=_ONSTART)
        eventually(lambda: len(processes_of(instance_id)) >= 4)
    assert not processes_of(instance_id)
    assert not vast.folder.exists()


def test_boxes_end_with_an_emulator_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.emulators.vast", "--no-rate-limits"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as emulator:
        assert emulator.stdout
        words = emulator.stdout.readline().split()
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        vast = Elsewhere(settings["VAST_URL"], settings["VAST_API_KEY"])
        instance_id = running(vast, onstart=_ONSTART)
        eventually(lambda: len(processes_of(instance_id)) >= 4)
        emulator.kill()
    eventually(lambda: not processes_of(instance_id))
