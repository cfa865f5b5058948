"""What serves SSH on this computer: OpenSSH's `sshd`, or the stand-in where that is not installed."""

import grp
import os
import pwd
import shutil
import sys
from pathlib import Path

_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
SAFE_FOLDER = "/mnt"
"""Where sshd sees a home: with StrictModes it takes no key from below /tmp, which others may write."""
STRICT = ("-o", "StrictModes=yes", "-o", f"AuthorizedKeysFile={SAFE_FOLDER}/.ssh/authorized_keys")
"""Words of its command line where a home is mounted there."""
_STRICT_SSHD = Path(__file__).with_name("strict_sshd.py")
_STAND_IN = Path(__file__).with_name("ssh_stand_in.py")


def user() -> str:
    """Who logs in: without root's rights, a server lets in nobody but the user who runs it."""
    return pwd.getpwuid(os.geteuid()).pw_name


def sshd() -> str | None:
    """The path of OpenSSH's server, absolute as it insists on."""
    found = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS]))
    return str(Path(found).absolute()) if found else None


def may_hand_out_terminals() -> bool:
    """Without root's rights sshd may not give a terminal to the group `tty`: it has to be of it already."""
    if os.geteuid() == 0:
        return True
    leader, terminal = os.openpty()
    try:
        return os.fstat(terminal).st_gid == grp.getgrnam("tty").gr_gid
    except KeyError:  # then the user's own group will do
        return True
    finally:
        os.close(leader)
        os.close(terminal)


def strictly(home: Path, command: list[str]) -> list[str]:
    """The command of a server, with StrictModes where the home may be mounted at SAFE_FOLDER."""
    return [sys.executable, "-I", "-S", str(_STRICT_SSHD), str(home), SAFE_FOLDER, *STRICT, "--", *command]


def stand_in(
    *listening: str,
    host_key: Path,
    authorized_keys: Path,
    home: Path,
    force_command: str | None = None,
    log_logins: bool = False,
) -> list[str]:
    """Its command. `listening`: where it does, in the words of its command line."""
    return [
        sys.executable,
        "-I",
        str(_STAND_IN),
        *listening,
        f"--host-key={host_key}",
        f"--authorized-keys={authorized_keys}",
        f"--set-env=HOME={home}",
        *([f"--force-command={force_command}"] if force_command is not None else []),
        *(["--log-logins"] if log_logins else []),
    ]
