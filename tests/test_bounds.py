"""What pyproject.toml asks for is what is tried: by `make lowest`, `make torch`, or every day."""

import re
from pathlib import Path

import pytest

from tests.bounds import bounds

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("extra", ["dev", "docs", "release"])
def test_tools_begin_at_the_versions_that_are_pinned(extra: str) -> None:
    pins = set((ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines())
    lowest = (re.sub(r"\[.*?\]", "", line) for line in bounds("lowest", [extra]))
    assert [line for line in lowest if line not in pins and not line.startswith("vastrun")] == []


def test_the_lowest_of_a_range_is_its_first_version() -> None:
    assert "vastai==1.9.1" in [*bounds("lowest", ["launcher", "vast"])]
    assert "vastai>=1.9.1,<2" in [*bounds("newest", ["vast"])]
