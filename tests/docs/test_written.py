"""Pages that are written from the code, in part or whole, say what the code says and leave nothing out."""

import re
import subprocess
import sys

import pytest

from tests.docs.generated import GENERATED
from tests.docs.markdown import DOCS, ROOT
from tests.docs.python_reference import left_out
from tests.docs.written import WRITTEN, with_rows
from tests.waiting import LONGEST_S
from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.core import Cause


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_as_make_schemas_writes_it(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == WRITTEN[name](text)


def test_every_cause_has_one_section_with_words_of_its_own() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `(\w+)`\n\n```text\n.+?```\n\n(?=\S)(?!##)", page, re.MULTILINE | re.DOTALL)
    assert sorted(sections) == sorted(Cause)


def test_a_row_of_a_new_key_needs_only_its_meaning() -> None:
    row = "| `limits.hours` | | | How long |\n"
    assert with_rows(row, any_job_type()) == "| `limits.hours` | a number above 0 | 12 | How long |\n"


def test_the_python_reference_has_every_name() -> None:
    page = GENERATED["python-reference.md"]()
    assert left_out() == set()
    assert "### vastrun.launch" in page
    assert "#### RunHandle.wait" in page
    assert "### vastrun.beat" in page


def test_the_decisions_are_all_listed() -> None:
    listed = GENERATED["decisions/index.md"]()
    assert all(f"]({record.name})" in listed for record in (DOCS / "decisions").glob("*.md"))


def test_pages_are_made_on_a_computer_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from tests.docs.generated import GENERATED\n"
        "print(all(make() for make in GENERATED.values()))"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S
    )
    assert made.stdout == "True\n", made.stderr
