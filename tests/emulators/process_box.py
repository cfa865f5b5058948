"""A box as processes of this computer: a folder, a first process, an SSH server, onstart at each start."""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.emulators import ssh_keys, ssh_servers
from tests.emulators.box import Graphics, Program
from tests.emulators.nvidia_smi import nvidia_smi

_INIT = Path(__file__).with_name("process_init.py")
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)
_STRANGER = 12345
"""A user's number that nobody here has."""
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

_HOSTNAME = """\
#!/bin/bash
# The addresses of the box's own interfaces, where it has any.
[[ $* != -I || -z "{addresses}" ]] || {{ echo "{addresses} "; exit 0; }}
exec {hostname} "$@"
"""


@dataclass
class ProcessBox:
    """It shares this computer's files, but for its home.

    Root's boxes also have a /workspace, /etc/ssh and /etc/environment, wherever mounts may be unshared.
    """

    root: Path
    graphics: Graphics
    _process: subprocess.Popen[bytes] | None = None
    _listener: socket.socket | None = None
    _keys_flaw: str = ""

    def start(self, program: Program, keys: Sequence[str]) -> None:
        self._wait()
        self._furnish(program)
        self._keys_flaw = program.keys_flaw
        self.authorize(keys)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        plan = self.root / "plan.json"
        plan.write_text(json.dumps(self._plan(program, self._listener.fileno())))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_INIT), str(plan)],
            cwd=self.root / "root",
            env={**self._environment(program), "PATH": self._path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._listener.fileno()],
            start_new_session=True,
        )

    def authorize(self, keys: Sequence[str]) -> None:
        part = self.root / "root/.ssh/authorized_keys.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(f"{key.strip()}\n" for key in keys))
        part.chmod(0o600)
        if self._keys_flaw:
            if self._keys_flaw == "owner" and os.geteuid() == 0:
                os.chown(part, _STRANGER, _STRANGER)
                os.chown(part.parent, _STRANGER, _STRANGER)
            else:
                part.chmod(0o666)
                part.parent.chmod(0o777)
        part.replace(part.with_name("authorized_keys"))

    def port(self, name: str) -> int | None:
        """Other ports than that of sshd are this computer's own."""
        if self.exit_code is not None:
            return None
        number, _, protocol = name.partition("/")
        if name == "22/tcp":
            return self._listener.getsockname()[1] if self._listener else None
        return int(number) if protocol == "tcp" else None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    @property
    def over(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def end(self) -> None:
        self._close_listener()
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wipe(self) -> None:
        self._wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def note(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(text)

    @property
    def _log(self) -> Path:
        return self.root / "container.log"

    def _wait(self) -> None:
        if self._process:
            self.end()
            self._process.wait(timeout=20.0)

    def _environment(self, program: Program) -> dict[str, str]:
        """The container's, without PATH."""
        root = self.root / "root"
        return {"HOME": str(root), "DATA_DIRECTORY": str(self.root / "workspace"), **program.env}

    def _plan(self, program: Program, sshd_fd: int) -> dict[str, object]:
        return {
            "log": str(self._log),
            "root": str(self.root),
            "cwd": str(self.root / "root"),
            "command": self._onstart(program) if program.onstart else [],
            "ssh_server": self._ssh_server(sshd_fd),
            "safe_folder": ssh_servers.SAFE_FOLDER,
            "strict": list(ssh_servers.STRICT) if ssh_servers.sshd() else [],
            "serves_one": ssh_servers.sshd() is not None,
            "sshd_fd": sshd_fd,
        }

    def _ssh_server(self, sshd_fd: int) -> list[str]:
        sshd = ssh_servers.sshd()
        if sshd:
            if os.geteuid() == 0:
                with _privilege_separation:
                    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
            return [sshd, "-i", "-e", "-f", str(self.root / "etc/ssh/sshd_config")]
        return ssh_servers.stand_in(
            f"--listening-fd={sshd_fd}",
            host_key=self.root / "etc/ssh/ssh_host_ed25519_key",
            authorized_keys=self.root / "root/.ssh/authorized_keys",
            home=self.root / "root",
            force_command=str(self.root / "bin/session"),
        )

    def _onstart(self, program: Program) -> list[str]:
        """As an init does: the kernel reads the first line; without one, a shell takes the text."""
        script = self.root / "root/onstart.sh"
        script.write_text(program.onstart)
        script.chmod(0o700)
        if program.by_sh or not program.onstart.startswith("#!"):
            return ["/bin/sh", str(script)]
        return [str(script)]

    def _furnish(self, program: Program) -> None:
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._script("session", _SESSION.format(root=self.root, path=shlex.quote(self._path())))
        self._script("nvidia-smi", nvidia_smi(self.graphics))
        hostname = shlex.quote(shutil.which("hostname") or "hostname")
        addresses = " ".join(program.addresses)
        self._script("hostname", _HOSTNAME.format(addresses=addresses, hostname=hostname))
        keygen = f"{shlex.quote(sys.executable)} {shlex.quote(ssh_keys.__file__)}"
        self._script("ssh-keygen", _SSH_KEYGEN.format(root=self.root, ssh_keygen=keygen))
        sftp = next((path for path in _SFTP_SERVERS if Path(path).exists()), "internal-sftp")
        config = _SSHD_CONFIG.format(root=self.root, sftp=sftp)
        (self.root / "etc/ssh/sshd_config").write_text(config)
        session = "".join(f'{name}="{value}"\n' for name, value in program.session_env.items())
        with (self.root / "etc/environment").open("a") as environment:
            environment.write(session)
        host_key = self.root / "etc/ssh/ssh_host_ed25519_key"
        if not host_key.exists():
            ssh_keys.make_pair(host_key)

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
