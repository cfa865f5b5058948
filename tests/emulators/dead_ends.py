"""How an instance looks that never gets to run, by the name of the fault."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DeadEnd:
    """How an instance looks that never gets to run."""

    actual: str
    cur: str
    intended: str
    text: str | None
    daemon_log: str | None = None
    """What the host's daemon logged; None: the text."""
    log_is_late: bool = False
    """The daemon's log is never ready."""


DEAD_ENDS: Mapping[str, DeadEnd] = {
    "stuck_loading": DeadEnd("loading", "running", "running", "a3ed95caeb02: Pulling fs layer\n"),
    "never_scheduled": DeadEnd("loading", "stopped", "stopped", None),
    "oci_failure": DeadEnd(
        "created",
        "stopped",
        "running",
        "Error response from daemon: failed to create task for container: OCI runtime create failed: "
        "failed to inject CDI devices: unresolvable CDI devices D.{id}/gpu=0: unknown\n"
        "Error: failed to start containers: C.{id}\n",
    ),
    "image_not_found": DeadEnd(
        "loading", "running", "running", "Error response from daemon: manifest for {image} not found\n"
    ),
    "pull_denied": DeadEnd(
        "loading",
        "running",
        "running",
        "Error response from daemon: pull access denied for {image}, repository does not exist or may "
        "require 'docker login': denied: requested access to the resource is denied\n",
    ),
    "pull_eof": DeadEnd("loading", "running", "running", "a3ed95caeb02: unexpected EOF\n"),
    "pull_unreachable": DeadEnd(
        "loading",
        "running",
        "running",
        "error pulling image configuration: download failed after attempts=6: connection reset by peer\n",
    ),
    "gpu_error": DeadEnd("loading", "running", "running", "GPU error, unable to start instance\n"),
    "daemon_log_image": DeadEnd(
        "created",
        "stopped",
        "stopped",
        None,
        "Unable to find image '{image}' locally\ndocker: Error response from daemon: manifest unknown.\n",
    ),
    "daemon_log_host": DeadEnd(
        "created",
        "stopped",
        "stopped",
        "the instance did not start\n",
        "nvidia-container-cli: initialization error: NVML: driver/library version mismatch\n",
    ),
    "daemon_log_noise": DeadEnd(
        "created", "stopped", "stopped", None, ("\x1b[2J\x1b]0;owned\x07\u202e" + "x" * 5000 + "\r\n") * 800
    ),
    "daemon_log_late": DeadEnd("created", "stopped", "stopped", None, log_is_late=True),
    "pull_no_space": DeadEnd(
        "loading",
        "running",
        "running",
        "failed to register layer: write /opt/lib.so: no space left on device\n",
    ),
    "build_failure": DeadEnd("loading", "running", "stopped", "docker_build() error writing dockerfile\n"),
}
