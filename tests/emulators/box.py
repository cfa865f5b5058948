"""An instance as real processes: a folder, a first process, a real sshd, the onstart text at each start."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_INIT = Path(__file__).with_name("box_init.py")
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)
_END_S = 20.0
_FOLDERS = ("root/.ssh", "etc/ssh", "workspace", "bin")

_SSHD_CONFIG = """\
HostKey {root}/etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile {root}/root/.ssh/authorized_keys
AuthenticationMethods publickey
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
MaxSessions 100
UseDNS no
PrintMotd no
LogLevel ERROR
Subsystem sftp {sftp}
SetEnv HOME={root}/root
ForceCommand {root}/bin/session
"""

_SESSION = """\
#!/bin/bash
# A login to the box: its own home, and of the container's environment only what /etc/environment says.
cd {root}/root || exit 1
command=${{SSH_ORIGINAL_COMMAND-}}
clean=(env -i HOME={root}/root PATH={path} SHELL=/bin/bash TERM="${{TERM-dumb}}" USER="$USER" LOGNAME="$USER"
  SSH_CLIENT="$SSH_CLIENT" SSH_CONNECTION="$SSH_CONNECTION")
while IFS= read -r line; do
  value=${{line#*=}}
  [[ $value != '"'*'"' ]] || value=${{value:1:-1}}
  [[ $line != [A-Za-z_]*=* ]] || clean+=("${{line%%=*}}=$value")
done <{root}/etc/environment
[[ -z $command ]] || exec "${{clean[@]}}" /bin/bash -c "$command"
exec "${{clean[@]}}" /bin/bash -l
"""

_SSH_KEYGEN = """\
#!/bin/bash
# The box's own host keys, also where it cannot have an /etc/ssh of its own.
shopt -s nullglob
exec {ssh_keygen} ${{@/#\\/etc\\/ssh/{root}/etc/ssh}}
"""

_NVIDIA_SMI = """\
#!/bin/bash
# What nvidia-smi says of the GPUs that this box was promised.
names=({names})
unit=' MiB'
[[ $* != *nounits* ]] || unit=
answer() {{
  local index=$1 field line=()
  IFS=, read -ra fields <<<"$2"
  for field in "${{fields[@]}}"; do
    case $field in
      index) line+=("$index") ;;
      name | gpu_name) line+=("${{names[index]}}") ;;
      uuid | gpu_uuid) line+=("GPU-00000000-0000-0000-0000-00000000000$index") ;;
      memory.total) line+=("{memory_mb}$unit") ;;
      memory.used) line+=("0$unit") ;;
      driver_version) line+=("{driver}") ;;
      *) line+=("[N/A]") ;;
    esac
  done
  local joined
  printf -v joined '%s, ' "${{line[@]}}"
  echo "${{joined%, }}"
}}
for argument; do
  case $argument in
    -L) for i in "${{!names[@]}}"; do
      echo "GPU $i: ${{names[i]}} (UUID: GPU-00000000-0000-0000-0000-00000000000$i)"
    done ;;
    --query-gpu=*) for i in "${{!names[@]}}"; do answer "$i" "${{argument#*=}}"; done ;;
  esac
done
"""


@dataclass(frozen=True, kw_only=True)
class Graphics:
    """The GPUs that the box's `nvidia-smi` shows."""

    names: Sequence[str]
    memory_mb: int
    driver: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a container runs. `command` is the onstart script of an ssh box, or the program of an args box."""

    env: Mapping[str, str]
    onstart: str
    entrypoint: Sequence[str] = ()
    """Not empty: an args container, which ends with this command."""
    ssh: bool = True
    by_sh: bool = False
    """The onstart text is given to /bin/sh, whatever its first line says."""


@dataclass
class Box:
    """One container. Its disk stays between `end` and the next `start`.

    It shares this computer's files; its own are its home, and for root also /workspace, /etc/ssh and
    /etc/environment, wherever mount namespaces are allowed.
    """

    root: Path
    graphics: Graphics
    log: Path = field(init=False)
    _process: subprocess.Popen[bytes] | None = None
    _listener: socket.socket | None = None

    def __post_init__(self) -> None:
        self.log = self.root / "container.log"

    def start(self, program: Program, keys: Sequence[str]) -> None:
        """The first process runs, and so does the program. Waits for the end of an earlier start."""
        self.wait()
        self._furnish()
        self.authorize(keys)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        plan = self.root / "plan.json"
        plan.write_text(json.dumps(self._plan(program, self._listener.fileno())))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_INIT), str(plan)],
            cwd=self.root / "root",
            env={**self.environment(program), "PATH": self._path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._listener.fileno()] if program.ssh else [],
            start_new_session=True,
        )
        if not program.ssh:
            self._close_listener()

    def environment(self, program: Program) -> dict[str, str]:
        """The container's, without PATH."""
        root = self.root / "root"
        return {"HOME": str(root), "DATA_DIRECTORY": str(self.root / "workspace"), **program.env}

    def authorize(self, keys: Sequence[str]) -> None:
        """Exactly these public keys may log in."""
        part = self.root / "root/.ssh/authorized_keys.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(f"{key.strip()}\n" for key in keys))
        part.chmod(0o600)
        part.replace(part.with_name("authorized_keys"))

    @property
    def ssh_port(self) -> int | None:
        """Where sshd answers now."""
        return self._listener.getsockname()[1] if self._listener and self.exit_code is None else None

    @property
    def exit_code(self) -> int | None:
        """None while the first process runs, or before the first start."""
        return self._process.poll() if self._process else None

    @property
    def over(self) -> bool:
        """No process of the box is left."""
        return self._process is None or self._process.poll() is not None

    def end(self) -> None:
        """Asks for the end of every process; does not wait."""
        self._close_listener()
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self) -> None:
        """No process of the box is left."""
        if self._process:
            self.end()
            self._process.wait(timeout=_END_S)

    def wipe(self) -> None:
        """The disk is empty, as after a recycle."""
        self.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _plan(self, program: Program, sshd_fd: int) -> dict[str, object]:
        sshd = [_sshd(), "-i", "-e", "-f", str(self.root / "etc/ssh/sshd_config")]
        command = list(program.entrypoint)
        if not command and program.onstart:
            command = self._onstart(program)
        return {
            "log": str(self.log),
            "root": str(self.root),
            "cwd": str(self.root / "root"),
            "command": command,
            "ends_with_command": bool(program.entrypoint),
            "sshd": sshd if program.ssh else [],
            "sshd_fd": sshd_fd,
        }

    def _onstart(self, program: Program) -> list[str]:
        """As an init does: the kernel reads the first line; without one, a shell takes the text."""
        script = self.root / "root/onstart.sh"
        script.write_text(program.onstart)
        script.chmod(0o700)
        if program.by_sh or not program.onstart.startswith("#!"):
            return ["/bin/sh", str(script)]
        return [str(script)]

    def _furnish(self) -> None:
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._script("session", _SESSION.format(root=self.root, path=shlex.quote(self._path())))
        smi = _NVIDIA_SMI.format(
            names=" ".join(map(shlex.quote, self.graphics.names)),
            memory_mb=self.graphics.memory_mb,
            driver=self.graphics.driver,
        )
        self._script("nvidia-smi", smi)
        keygen = shlex.quote(shutil.which("ssh-keygen") or "ssh-keygen")
        self._script("ssh-keygen", _SSH_KEYGEN.format(root=self.root, ssh_keygen=keygen))
        config = _SSHD_CONFIG.format(root=self.root, sftp=_sftp_server())
        (self.root / "etc/ssh/sshd_config").write_text(config)
        (self.root / "etc/environment").touch()
        host_key = self.root / "etc/ssh/ssh_host_ed25519_key"
        if not host_key.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "box", "-f", str(host_key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def _script(self, name: str, text: str) -> None:
        script = self.root / "bin" / name
        script.write_text(text)
        script.chmod(0o755)

    def _path(self) -> str:
        """The image is this computer's Python and tools."""
        return f"{self.root}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def _close_listener(self) -> None:
        if self._listener:
            self._listener.close()
            self._listener = None


_privilege_separation = threading.Lock()


def _sshd() -> str:
    """The server's path; OpenSSH insists on an absolute one, and on its empty folder when started by root."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if not found:
        raise RuntimeError("the emulator needs OpenSSH's sshd: apt-get install openssh-server")
    if os.geteuid() == 0:
        with _privilege_separation:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return found


def _sftp_server() -> str:
    return next((path for path in _SFTP_SERVERS if Path(path).exists()), "internal-sftp")
