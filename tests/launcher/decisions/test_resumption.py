"""Which of a program's files are its checkpoints, by what each save changed, and whether it continued."""

from collections.abc import Mapping
from typing import Any

import pytest

from vastrun.launcher.decisions import resumption

BIG, SMALL = 1_000_000, 100


def save(files: Mapping[str, tuple[int, int]], step: int = 10) -> resumption.Save:
    return resumption.Save(step=step, is_calm=True, files=files)


PATTERNS = {
    "a number in the name": ("ckpt/step_*.pt", {"ckpt/step_10.pt"}, {"ckpt/step_10.pt", "ckpt/step_20.pt"}),
    "a folder with a number": (
        "out/checkpoint-*",
        {"out/checkpoint-5/model.bin", "out/checkpoint-5/rng.bin"},
        {"out/checkpoint-9/model.bin", "out/checkpoint-9/rng.bin"},
    ),
    "only the number that changes": ("r18/ema0.99_*.pt", {"r18/ema0.99_5.pt"}, {"r18/ema0.99_6.pt"}),
    "a name with brackets": ("a[[]x]_*.pt", {"a[x]_1.pt"}, {"a[x]_2.pt"}),
    "one that was written once": (None, {"resnet18.pt"}, {"resnet18.pt"}),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_a_checkpoint_is_the_large_file_that_each_save_adds(case: str) -> None:
    pattern, first, second = PATTERNS[case]
    both = [save({f"code/{name}": (BIG, 1) for name in names}) for names in (first, second)]
    assert resumption.checkpoint_pattern(both) == pattern


def test_a_checkpoint_may_be_rewritten_and_logs_and_data_are_none() -> None:
    first = {"code/last.pt": (BIG, 1), "code/log.txt": (SMALL, 1), "code/data.bin": (9 * BIG, 1)}
    second = first | {"code/last.pt": (BIG, 2), "code/log.txt": (2 * SMALL, 2)}
    assert resumption.checkpoint_pattern([save(first), save(second)]) == "last.pt"
    log = {"code/log.txt": (BIG, 2)}
    grown = resumption.Save(step=9, is_calm=True, files=first | log, logs=frozenset(log))
    assert resumption.checkpoint_pattern([save(first), grown]) is None
    assert resumption.checkpoint_pattern([save(first)]) is None
    assert resumption.checkpoint_pattern([]) is None


def test_of_several_files_the_one_that_was_read_is_named() -> None:
    first, second = (
        {f"run/outputs/{letter}_{number}.pt": (BIG + more, number) for letter, more in (("a", 0), ("b", 9))}
        for number in (1, 2)
    )
    both = [save(first), save(first | second)]
    assert resumption.checkpoint_pattern(both) == "$VASTRUN_OUTPUTS/b_*.pt"
    assert resumption.checkpoint_pattern(both, {"run/outputs/a_2.pt"}) == "$VASTRUN_OUTPUTS/a_*.pt"


def test_what_the_job_names_is_what_a_program_that_continues_reads() -> None:
    files = {"code/c/step_1/w.pt": (SMALL, 1), "code/c/step_10/w.pt": (SMALL, 1), "code/data.bin": (BIG, 1)}
    named = resumption.Save(step=1, is_calm=True, files=files, named="code/c/step_1")
    assert resumption.files_to_continue([named]) == {"code/c/step_1/w.pt"}
    assert resumption.files_to_continue([save(files)]) == {"code/data.bin"}


def test_ten_rows_at_most_are_shown_the_largest_first() -> None:
    files = {f"code/{chr(97 + number)}": (number, 1) for number in range(20)}
    rows = resumption.written_files(save(files | {"code/x_1": (300, 1), "code/x_2": (400, 1)}))
    assert [(row.name, row.count, row.size) for row in rows[:2]] == [("x_*", 2, 700), ("t", 1, 19)]
    assert len(rows) == 10


def test_outputs_are_folders_and_files_without_the_checkpoints() -> None:
    paths = ["code/log.txt", "code/w/a.pt", "code/ckpt/s_1.pt", "code/i_1.png", "code/i_2.png", "run/run.log"]
    assert resumption.outputs_of(paths, "ckpt/s_*.pt") == ["i_*.png", "log.txt", "w/**/*"]


ANSWERS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "a later step": (
        {"before": 1, "after": 8, "read": ["code/a.pt"]},
        "continued",
        "at step 8, and read a.pt",
    ),
    "the first step": (
        {"before": 1, "after": 1},
        "started_over",
        "over at step 1: it did not read its checkpoint",
    ),
    "the first step, read": (
        {"before": 1, "after": 1, "read": ["code/a.pt"]},
        "started_over",
        "although it read a.pt",
    ),
    "no step, read": ({"read": ["code/a.pt"]}, "read", "it read a.pt"),
    "no step, not read": ({}, "started_over", "it did not read its checkpoint, such as a.pt"),
    "nothing to see": ({"shows_reads": False}, "unknown", "only its log shows"),
    "a failure": ({"failure": "no option --resume"}, "failed", "started again: no option --resume"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_steps_come_first_and_reads_decide_where_there_are_none(case: str) -> None:
    seen, answer, text = ANSWERS[case]
    steps = (seen.get("before"), seen.get("after"))
    read, failure = seen.get("read", ()), seen.get("failure", "")
    shows = seen.get("shows_reads", True)
    found = resumption.judge(save({"code/a.pt": (BIG, 1)}), steps, read, failure, shows_reads=shows)
    assert found[0] == answer
    assert text in found[1]
