"""Every command line that a page shows is one that vastrun takes, and every option one that it has."""

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.docs.commands import faults, options
from tests.docs.generated import commands
from tests.docs.markdown import PAGES, ROOT, blocks, inline
from vastrun.launcher.cli import COMMANDS, cli

_SHOWN = re.compile(r"(?:^|(?<=  )|(?<=[:$] ))vastrun +[a-z-].*$", re.MULTILINE)
"""Not in the middle of a sentence that vastrun prints."""
_OF_OTHERS = {
    "--port": "of the emulator",
    "--local_rank": "of programs for torch.distributed.launch",
    "--docker": "of the emulator",
    "--account": "of sbatch",
    "--time": "of sbatch",
    "--node": "of the supervisor",
    "--mount": "of Docker",
    "--rm": "of Docker",
    "--code": "of the program that makes data",
    "--task": "of the program that makes data",
    "--model": "of the program that evaluates",
    "--jobs": "of the program that makes data",
}
"""Options of other programs that our pages name by themselves."""


def command_lines(text: str) -> Iterator[str]:
    """Yield what begins with `vastrun`: lines of blocks, and what stands between backticks."""
    for language, code in blocks(text):
        if language not in ("yaml", "python"):
            yield from _SHOWN.findall(code)
    yield from (code for code in inline(text) if code.startswith("vastrun "))


def test_every_command_of_a_page_is_one_that_vastrun_takes() -> None:
    wrong = [
        (page.name, line, fault)
        for page in PAGES
        for line in command_lines(page.read_text(encoding="utf-8"))
        for fault in faults(line)
    ]
    assert wrong == []


def test_every_option_that_a_page_names_by_itself_is_one_of_vastrun() -> None:
    known = options() | set(_OF_OTHERS)
    wrong = [
        (page.name, code)
        for page in PAGES
        for code in inline(page.read_text(encoding="utf-8"))
        if code.startswith("--") and re.split("[ =]", code)[0] not in known
    ]
    assert wrong == []


def test_every_make_target_that_a_page_names_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join([*inline(text), *(code for _, code in blocks(text))])
        assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) - targets == set(), page


def test_the_skill_names_only_what_there_is() -> None:
    skill = CliRunner().invoke(cli, ["skill"]).output
    lines = re.findall(r"`(vastrun [^`]+)`", skill)
    assert len(lines) > 10 and not [
        fault for line in lines for fault in faults(line) if "COMMAND" not in line
    ]
    assert all(f"`{name}`" in skill for name in COMMANDS)


def test_the_page_of_commands_has_each_with_its_options() -> None:
    page = commands()
    assert "## vastrun batch submit" in page
    assert "## vastrun cost reconcile" in page
    assert {option for option in options() if option.startswith("--") and option not in page} == set()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("vastrun launch JOB.yaml --by 18:00 # a comment", ""),
        ("vastrun batch results BATCH --csv | head", ""),
        ("vastrun cost --by tag", ""),
        ("vastrun lunch JOB.yaml", "vastrun has no command lunch"),
        ("vastrun batch dance", "vastrun batch has no command dance"),
        ("vastrun launch JOB.yaml --fast", "No such option '--fast'"),
        ("vastrun why RUN OTHER", "vastrun why: unexpected OTHER"),
        ("vastrun launch JOB.yaml --by", "Option '--by' requires an argument."),
    ],
)
def test_a_line_that_vastrun_would_refuse_is_found(line: str, fault: str) -> None:
    found = "; ".join(faults(line))
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_command_lines_are_found_in_blocks_and_in_sentences() -> None:
    text = "See `vastrun why`.\n\n```sh\nvastrun plan a.yaml\n```\n\n    vastrun stop last\n"
    assert list(command_lines(text)) == ["vastrun plan a.yaml", "vastrun stop last", "vastrun why"]
