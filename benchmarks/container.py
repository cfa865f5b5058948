"""From the command to the first training step in a container on this computer: the seconds of each stage."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from docker import DockerClient
from docker.models.containers import Container

from benchmarks.figures import show_alone
from tests.e2e.terminal import Terminal, eventually

ROUNDS = 3
STAGES = {
    "created": "the daemon has made it",
    "started": "its first program runs",
    "lease armed": "from here on it ends by itself",
    "sshd answers": "its SSH server names itself",
    "shipped": "the bundle is unpacked",
    "steps done": "the machine is examined, the data are made",
    "first step": "by two ranks",
}
_JOB = (
    str(Path(__file__).parents[1] / "configs" / "quickstart.yaml"),
    *("--provider", "docker", "--set", "train.steps=5", "--set", "train.log_every=1"),
)
_MAX_S = 300.0


def run() -> None:
    """Print a line for each stage; one that says why, where no container can be had."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Terminal(Path(folder)).type("plan", *_JOB)
    if plan.exit_code:
        print(f"{'container':<24} left out: {plan.err.splitlines()[0]}", flush=True)
        return
    rounds = [_moments() for _ in range(ROUNDS)]
    before = "command"
    for stage, what in STAGES.items():
        show_alone(f"container {stage}", [one[stage] - one[before] for one in rounds], f"s, {what}")
        before = stage
    whole = [one[before] - one["command"] for one in rounds]
    show_alone("container in all", whole, "s, from the command on")


def _moments() -> Mapping[str, float]:
    """When the command was typed, and when each stage was over."""
    client = DockerClient.from_env()
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(Path(folder))
        moments = {"command": time.time()}
        launch = terminal.start("launch", *_JOB)
        container = _container(client, terminal)
        moments["sshd answers"] = _answered(container)
        launch.shows("supervisor starting", within_s=_MAX_S)
        moments["lease armed"] = _written(container, "vastrun/lease.state")
        moments["shipped"] = _written(container, "vastrun/shipped")
        done = launch.end(within_s=_MAX_S)
        assert done.exit_code == 0, done.err[-2000:]
        return moments | _seen_by_docker(client, container, moments["command"]) | _trained(terminal.outputs())


def _container(client: DockerClient, terminal: Terminal) -> Container:
    """That of the one run of this terminal."""

    def look() -> Container | None:
        runs = terminal.folder.glob("runs/*")
        labels = [f"io.vastrun.label=vastrun-{run.name}" for run in runs]
        found = client.containers.list(filters={"label": labels}) if labels else []
        return found[0] if found else None

    container = eventually(look, within_s=_MAX_S, what="a container")
    assert container is not None
    return container


def _answered(container: Container) -> float:
    def look() -> float | None:
        container.reload()
        for port in container.ports.get("22/tcp") or ():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", int(port["HostPort"]))) as plug,
            ):
                return time.time() if plug.recv(4) == b"SSH-" else None
        return None

    moment = eventually(look, within_s=_MAX_S, what="an answer of sshd")
    assert moment is not None
    return moment


def _written(container: Container, path: str) -> float:
    return float(container.exec_run(["stat", "--format", "%.3Y", path], workdir="/root").output)


def _seen_by_docker(client: DockerClient, container: Container, since: float) -> Mapping[str, float]:
    filters = {"container": container.id, "event": ["create", "start"]}
    events = client.events(since=since, until=time.time(), filters=filters, decode=True)
    moments = {event["Action"]: event["timeNano"] / 1e9 for event in events}
    return {"created": moments["create"], "started": moments["start"]}


def _trained(outputs: Path) -> Mapping[str, float]:
    """As the log and the first line of metrics have it."""
    log = (outputs / "log.txt").read_text().splitlines()
    metrics = (outputs / "metrics.jsonl").read_text().splitlines()
    starting = next(line for line in log if "supervisor starting" in line)
    return {"steps done": float(starting.split()[0]), "first step": json.loads(metrics[0])["at"]}
