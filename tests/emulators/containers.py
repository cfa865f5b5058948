"""What stands behind instances: their boxes, their ports and the variables Vast injects."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.emulators.behaviour import Behaviour
from tests.emulators.box import Box, Graphics, Program
from tests.emulators.faults import KEYS, SSH, Faults
from tests.emulators.gateway import Gateway, Mood
from tests.emulators.instance import SSH_PORT, Instance
from tests.emulators.offer_rows import LOOPBACK
from tests.emulators.sshd import Sshd
from vastrun.launcher.providers.vast.account import VARIABLE as KEY_VARIABLE

PROXY = "proxy"
_NOISE = "Error: remote port forwarding failed for listen port {port}\n"
_FLAWS = {"key_modes_wrong": "modes", "key_owner": "owner"}
_MOODS = {
    "ssh_refused": {PROXY: Mood.REFUSING, SSH_PORT: Mood.REFUSING},
    "ssh_silent": {PROXY: Mood.SILENT, SSH_PORT: Mood.SILENT},
    "proxy_refused": {PROXY: Mood.REFUSING},
    "direct_refused": {SSH_PORT: Mood.REFUSING},
    "direct_silent": {SSH_PORT: Mood.SILENT},
}


class Containers:
    """Starts and ends boxes. Nothing here waits, but for a box that has to start again."""

    def __init__(
        self,
        faults: Faults,
        behaviour: Behaviour,
        folder: Path,
        url: str,
        make_box: Callable[[str, Graphics], Box],
    ) -> None:
        self._faults = faults
        self._behaviour = behaviour
        self._folder = folder
        self._url = url
        self._make_box = make_box
        self._gateway = Gateway()
        self._ending: list[Box] = []
        self.impostor = Sshd(folder / "impostor")
        """Runs once somebody was led to it."""

    def furnish(self, instance_id: int, graphics: Graphics) -> Box:
        """An empty box."""
        return self._make_box(f"C.{instance_id}", graphics)

    def connect(self, instance: Instance) -> None:
        """The instance's ports are open, and lead nowhere until it runs."""
        names = [*dict.fromkeys(instance.rental.published), PROXY]
        if instance.rental.direct and instance.machine.direct_ports > 0:
            names.append(SSH_PORT)
        for name in names:
            address = LOOPBACK if name == PROXY else instance.address
            instance.ports[name] = self._gateway.open(address, partial(_target, instance, name))

    def start(self, instance: Instance, quirk: str | None) -> None:
        """The container runs its program."""
        fault = self._faults.first(SSH, instance.place)
        moods = {**self._told_moods(), **(_MOODS.get(fault.name, {}) if fault else {})}
        for name, port in instance.ports.items():
            port.set_mood(moods.get(name, Mood.OPEN))
            port.bytes_per_s = 200_000.0 if fault and fault.name == "slow_network" else None
        if fault and fault.name == "ssh_impostor":
            self._mislead(instance)
        denied = fault is not None and fault.name == "ssh_denied"
        flaw = self._faults.first(KEYS, instance.place)
        program = replace(self._program(instance, quirk), keys_flaw=_FLAWS[flaw.name] if flaw else "")
        instance.box.start(program, [] if denied else list(instance.ssh_keys.values()))
        if quirk == "log_noise":
            instance.box.note(_NOISE.format(port=instance.ports[PROXY].number) * 50)

    def _told_moods(self) -> dict[str, Mood]:
        ways = {"ssh.direct": SSH_PORT, "ssh.proxy": PROXY}
        return {port: Mood.REFUSING for row, port in ways.items() if self._behaviour.word(row) != "opens"}

    def end(self, instance: Instance) -> None:
        """Every process of the container is about to be killed."""
        instance.box.end()

    def remove(self, instance: Instance) -> None:
        """Container and disk are gone soon, the ports at once."""
        for port in instance.ports.values():
            port.close()
        instance.box.end()
        self._ending.append(instance.box)

    def set_mood(self, instance: Instance, mood: Mood) -> None:
        """All the instance's ports treat who connects like this."""
        for port in instance.ports.values():
            port.set_mood(mood)

    def sweep(self) -> None:
        """The disks of boxes that ended are removed."""
        for box in [box for box in self._ending if box.over]:
            self._ending.remove(box)
            box.wipe()

    def close(self) -> None:
        """No process is left, and no folder."""
        for box in self._ending:
            box.wipe()
        self._gateway.close()
        self.impostor.__exit__(None, None, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _mislead(self, instance: Instance) -> None:
        """Who connects to the instance gets to the impostor, which lets them all in."""
        self.impostor.stop()
        number = self.impostor.__enter__().address[1]
        for key in instance.ssh_keys.values():
            self.impostor.authorize(key)
        for port in instance.ports.values():
            port.lead_to(lambda: number)

    def _program(self, instance: Instance, quirk: str | None) -> Program:
        rental = instance.rental
        skipped = quirk == "onstart_skipped"
        return Program(
            env=self._environment(instance, with_key=quirk != "no_container_key"),
            onstart="" if skipped else self._onstart(rental.onstart),
            ports=rental.published,
            by_sh=quirk == "onstart_by_sh",
            addresses=self._addresses(instance),
            session_env={"CONTAINER_API_KEY": instance.api_key}
            if self._behaviour.word("box.session_key") == "present"
            else {},
        )

    def _addresses(self, instance: Instance) -> list[str]:
        """Those of a box on an overlay: eth0 is the overlay, eth1 the way out."""
        if not instance.rental.networks:
            return []
        missing = self._faults.take("no_interface", instance.place)
        return ["172.17.0.2"] if missing else [instance.address, "172.17.0.2"]

    def _onstart(self, ordered: str) -> str:
        return (
            ordered if self._behaviour.word("onstart.sha256") == "as ordered" else f"{ordered}\n# changed\n"
        )

    def _environment(self, instance: Instance, *, with_key: bool) -> dict[str, str]:
        published = {name: port.number for name, port in instance.ports.items() if name != PROXY}
        right = self._behaviour.word("box.container_id") == "the machine's id"
        injected = {
            "CONTAINER_ID": str(instance.id if right else instance.id + 1),
            "CONTAINER_LABEL": f"C.{instance.id}",
            "VAST_CONTAINERLABEL": f"C.{instance.id}",
            "PUBLIC_IPADDR": instance.address,
            "GPU_COUNT": str(len(instance.gpu_names)),
            "SSH_PUBLIC_KEY": "\n".join(instance.ssh_keys.values()),
            "JUPYTER_TOKEN": instance.api_key[:16],
            "VAST_URL": self._url,
            **{_port_variable(name): str(number) for name, number in published.items()},
        }
        if with_key and self._behaviour.word("box.key") == "present":
            injected["CONTAINER_API_KEY"] = instance.api_key
        ordered = dict(instance.rental.variables)
        if any(self._faults.waiting(name, instance.place) for name in ("attach_denied", "attach_lost")):
            ordered.pop(KEY_VARIABLE, None)
        return {**ordered, **injected}


def _target(instance: Instance, name: str) -> int | None:
    """Where a port leads now; the proxy to sshd."""
    if not instance.runs:
        return None
    return instance.box.port(SSH_PORT if name == PROXY else name)


def _port_variable(name: str) -> str:
    number, _, protocol = name.partition("/")
    return f"VAST_{protocol.upper()}_PORT_{number}"
