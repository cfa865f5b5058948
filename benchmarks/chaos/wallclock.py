"""The wall clock of one user's computer, which is set forward or back while commands run."""

from collections.abc import Mapping
from pathlib import Path

_HOOK = Path(__file__).parent / "clock"


class WallClock:
    """Of every Python that is started with `variables`. Monotonic clocks are left alone."""

    def __init__(self, file: Path, ahead_s: float = 0.0) -> None:
        """`ahead_s`: by how much the time of the emulated world is ahead of this computer's."""
        self._file, self._ahead_s, self._by_s = file, ahead_s, 0.0
        self._file.write_text(str(ahead_s))
        self.variables: Mapping[str, str] = {"PYTHONPATH": str(_HOOK), "CHAOS_CLOCK": str(file)}

    def set_by(self, seconds: float) -> None:
        """The clock is so far from the true one."""
        self._by_s = seconds
        part = self._file.with_suffix(".part")
        part.write_text(str(self._ahead_s + seconds))
        part.rename(self._file)

    def advance(self, seconds: float) -> None:
        """It is so much later at once."""
        self.set_by(self._by_s + seconds)
