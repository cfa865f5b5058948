"""A terminal of real size: a command runs in it, keys are pressed, the screen is read."""

import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from select import select

import pyte

from tests.waiting import eventually

CTRL_C = "\x03"
ENTER = "\r"
_LINES = 400
_TAKE_OVER = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


class Pty:
    """The command and the terminal it has for itself."""

    def __init__(self, command: list[str], *, columns: int, cwd: Path, environ: Mapping[str, str]) -> None:
        self._screen = pyte.Screen(columns, _LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._lines: list[str] | None = None
        self._is_open = True
        self._keys, self._terminal = os.openpty()
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
        modes = termios.tcgetattr(self._terminal)
        modes[3] |= termios.NOFLSH
        termios.tcsetattr(self._terminal, termios.TCSANOW, modes)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_OVER, *command],
            stdin=self._terminal,
            cwd=cwd,
            env={"TERM": "xterm", **environ},
        )

    def press(self, keys: str) -> None:
        """As typed by the user."""
        os.write(self._keys, keys.encode())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def lines(self) -> list[str]:
        """What is on the screen by now, without the empty rest."""
        while select([self._keys], [], [], 0)[0]:
            self._stream.feed(os.read(self._keys, 65536))
            self._lines = None
        if self._lines is None:
            self._lines = [line.rstrip() for line in self._screen.display]
            while self._lines and not self._lines[-1]:
                self._lines.pop()
        return [*self._lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def shows(self, text: str) -> None:
        """Return when it is on the screen. Raises AssertionError when the command ends without it."""

        def look() -> bool:
            ended = self.process.poll() is not None
            shown = text in self.text
            assert shown or not ended, self.text
            return shown

        eventually(look, what=f"{text!r} on the screen")

    def modes(self) -> list[object]:
        """How the terminal treats keys."""
        return termios.tcgetattr(self._terminal)

    def end(self) -> int:
        """The command's exit code; its output is read meanwhile."""

        def ended() -> bool:
            _ = self.lines  # an unread terminal would hold it up
            return self.process.poll() is not None

        eventually(ended, what="its end")
        return self.process.returncode

    def hang_up(self) -> None:
        """Its window is closed: whatever runs in it gets SIGHUP, and can neither read nor write."""
        if self._is_open:
            self._is_open = False
            os.close(self._keys)
            os.close(self._terminal)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()


@contextmanager
def pty(command: list[str], *, columns: int, cwd: Path, environ: Mapping[str, str]) -> Iterator[Pty]:
    """Run the command in a terminal of that width."""
    opened = Pty(command, columns=columns, cwd=cwd, environ=environ)
    try:
        yield opened
    finally:
        opened.close()
