"""Provider `local`: an instance is a folder on this computer, with the processes started in it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.records import write_json
from vastrun.launcher.core import LABEL_PREFIX, Instance, Offer, RentalOrder, errors
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ledger.presence import is_locked
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext, inherited_environment
from vastrun.launcher.providers.hardware import CPU_ONLY, node_offers, read_hardware
from vastrun.launcher.providers.local.remote import LocalRemote, box_error, missing_requirement

_RECORD = "instance.json"
_DESTROY_S = 120.0
_LOOPBACK = "127.0.0.1"
_PORTS_PER_RUN = 3
_PORTS = range(20_000, 32_000, _PORTS_PER_RUN)


class LocalProvider:
    """The Provider port for boxes below `root`. `connect` restarts a box's lease if it is not running."""

    name = "local"
    max_nodes = 64
    shared = False
    list_lag_s = 0.0

    def __init__(
        self,
        root: Path,
        python: str,
        usd_per_hour: float = 0.0,
        *,
        clock: Clock,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.free = usd_per_hour == 0
        self._root = root.absolute()
        self._python = python
        self._usd_per_hour = usd_per_hour
        self._clock = clock
        self._visible_gpus = environ.get("CUDA_VISIBLE_DEVICES")
        self._inherited = inherited_environment(environ)

    @classmethod
    def of(cls, context: ProviderContext) -> LocalProvider:
        """Build the provider with its boxes in the launcher's state folder."""
        return cls(context.state / "boxes", context.python, clock=context.clock, environ=context.environ)

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return this computer as an offer; with GPUs and several nodes, an offer for each node.

        Raises NoOfferError with all unmet requirements.
        """
        wants, hint = missing_requirement()
        if wants:
            raise errors.NoOfferError(f"`local` {wants}", hint=hint)
        hardware, computer = read_hardware(self._root, visible=self._visible_gpus), "this computer"
        return node_offers(
            spec,
            hardware,
            name=computer,
            host=platform.node(),
            where=computer,
            usd_per_hour=self._usd_per_hour,
        )

    def rent(self, order: RentalOrder) -> Instance:
        """Create the box's folder atomically, and arm its lease."""
        instance_id = f"{order.label.removeprefix(LABEL_PREFIX)}.{secrets.token_hex(2)}"
        box = self._root / instance_id
        record = {
            "label": order.label,
            "usd_per_hour": order.offer.usd_per_hour,
            "rented_at": self._clock.now(),
            "host": platform.node(),
            "rendezvous": _free_rendezvous() if order.nodes[:1] == (order.label,) else "",
            # Other runs train on this computer, too: a box must only see the GPUs of its offer.
            "env": {**order.env, "CUDA_VISIBLE_DEVICES": order.offer.id.removeprefix(CPU_ONLY)},
        }
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Built under a hidden name, then renamed: a crash leaves no incomplete box.
            # What a launcher that died during this left goes; a run is driven by one launcher at a time.
            for left_behind in self._root.glob(f".{box.stem}.*"):
                shutil.rmtree(left_behind, ignore_errors=True)
            hidden = box.with_name(f".{box.name}")
            hidden.mkdir(mode=0o700)
            (hidden / layout.LEASE_SCRIPT).write_text(order.onstart, encoding="utf-8")
            write_json(hidden / _RECORD, record)
            hidden.rename(box)
        except OSError as error:
            raise box_error(error) from error
        # Before the box is returned: a launcher that is killed now leaves one that ends by itself.
        self._ensure_lease(box, record)
        return self._instance(box)

    def instances(self) -> Sequence[Instance]:
        """List all boxes, including partly removed ones."""
        found = []
        try:
            boxes = sorted(self._root.iterdir()) if self._root.exists() else []
            for box in boxes:
                if box.is_dir() and not box.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        found.append(self._instance(box))
        except OSError as error:
            raise box_error(error) from error
        return found

    def machine(self, instance_id: str) -> Instance | None:
        return next((found for found in self.instances() if found.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        box = self._box(instance.id)
        record = _read_record(box)
        if record is None:
            if box.is_dir():
                raise errors.UnreachableError(f"{instance.id} has no record: it can only be destroyed")
            raise errors.GoneError(f"no such box: {instance.id}")
        self._ensure_lease(box, record)
        return LocalRemote(box, self._environment(box, record))

    def destroy(self, instance_id: str) -> None:
        """Kill all processes of the box, including daemonized ones, and remove its folder."""
        box = self._box(instance_id)
        script = str(onstart_dir() / layout.LEASE_SCRIPT)
        try:
            done = _bash(script, "end", instance_id, str(box), env=self._inherited, timeout_s=_DESTROY_S)
        except subprocess.TimeoutExpired as error:
            raise errors.ProviderError(f"{box} could not be removed within {_DESTROY_S:.0f} s") from error
        except OSError as error:
            raise box_error(error) from error
        if box.exists():
            raise errors.ProviderError(f"{box} could not be removed: {done.stderr.strip()[-300:]}")

    def _box(self, instance_id: str) -> Path:
        # The id may come from a ledger that somebody edited, and `destroy` removes this folder.
        if Path(instance_id).name != instance_id or instance_id.startswith(".") or not instance_id:
            raise errors.ProviderError(f"not the id of a local box: {instance_id!r}")
        return self._root / instance_id

    def _ensure_lease(self, box: Path, record: Mapping[str, Any]) -> None:
        """Start the lease if it is not running, as each start of a machine does. Idempotent."""
        try:
            if is_locked(box / layout.LEASE_LOG):
                return
            environment = self._environment(box, record)
            done = _bash(layout.LEASE_SCRIPT, cwd=box, env=environment, timeout_s=30.0)
        except subprocess.TimeoutExpired as error:
            raise errors.UncertainError(f"the lease of {box.name} did not start in time") from error
        except OSError as error:
            if not box.is_dir():
                raise errors.GoneError(f"no such box: {box.name}") from error
            raise box_error(error) from error
        if done.returncode < 0:  # an expired lease kills the whole box, including its starter
            raise errors.GoneError(f"no such box: {box.name}: its lease has expired")
        if not (box / layout.LEASE_SCRIPT).is_file():  # another process is removing the folder
            raise errors.UnreachableError(f"{box.name} has no lease script: it can only be destroyed")
        if done.returncode != 0:
            raise errors.ProviderError(f"the lease of {box.name} did not start: {done.stderr.strip()[-300:]}")

    def _environment(self, box: Path, record: Mapping[str, Any]) -> dict[str, str]:
        variables = {"VASTRUN_BOX": str(box), "VASTRUN_INSTANCE": box.name, "VASTRUN_PYTHON": self._python}
        return {**self._inherited, **record["env"], **variables}

    def _instance(self, box: Path) -> Instance:
        record = _read_record(box)
        if record is None:
            record = {"label": LABEL_PREFIX + box.stem, "usd_per_hour": self._usd_per_hour, "host": ""}
        return Instance(
            id=box.name,
            label=record["label"],
            state="running" if is_locked(box / layout.LEASE_LOG) else "stopped",
            usd_per_hour=record["usd_per_hour"],
            rented_at=record.get("rented_at") or box.stat().st_mtime,
            host=record["host"],
            rendezvous=str(record.get("rendezvous", "")),
        )


def _free_rendezvous() -> str:
    """Return HOST:PORT for the rendezvous of a run's nodes: the port and the next two are free.

    The port is below the kernel's ephemeral range, from which others could take it before the nodes start.
    """
    while True:
        port = secrets.choice(_PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for one in range(port, port + _PORTS_PER_RUN):
                stack.enter_context(socket.socket()).bind((_LOOPBACK, one))
            return f"{_LOOPBACK}:{port}"


def _bash(
    *script: str, env: Mapping[str, str], timeout_s: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a bash script to its end, in a new session that the launcher's Ctrl-C does not reach."""
    return subprocess.run(
        ["bash", *script],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=timeout_s,
        start_new_session=True,
    )


def _read_record(box: Path) -> dict[str, Any] | None:
    """Return the record written by `rent`; None when it is unreadable, as in a partly removed folder."""
    try:
        record: dict[str, Any] = json.loads((box / _RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise box_error(error) from error
    return record
