"""The first draw of Hypothesis in a process: it reads all local modules for it, and lists all of Unicode."""

from hypothesis import given, settings
from hypothesis import strategies as st


def draw_text() -> None:
    """Draw one text: later draws, also of processes that are forked from this one, find the tables made."""

    @settings(max_examples=1, database=None, derandomize=True)
    @given(st.text())
    def draw(_: str) -> None:
        return

    draw()
