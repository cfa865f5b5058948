"""Starts sshd in a mount namespace in which a home lies in a safe folder, so that StrictModes can be on.

In: HOME FOLDER OPTION... -- COMMAND...; the options are added to the command where the home could be mounted.
"""

import ctypes
import os
import sys

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
"""As a slave: what is mounted on this computer later is seen, too."""


def main() -> None:
    """Becomes the command."""
    end = sys.argv.index("--")
    home, folder, *options = sys.argv[1:end]
    command = sys.argv[end + 1 :]
    libc = ctypes.CDLL(None)
    is_mounted = (
        libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None) == 0
        and libc.mount(home.encode(), folder.encode(), None, _MS_BIND, None) == 0
    )
    os.execv(command[0], [*command, *(options if is_mounted else [])])


if __name__ == "__main__":
    main()
