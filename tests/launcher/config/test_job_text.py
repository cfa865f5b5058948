"""Keys are added to a job file as text: what the user wrote stays as it is."""

import pytest

from vastrun.launcher.config.source import with_keys

TEXTS = {
    "at the end": (
        "# mine\nname: a  # b\ncommand: x\n\n",
        '# mine\nname: a  # b\ncommand: x\n\ncheckpoints: "c/*"\n',
    ),
    "after a script": ("command: |\n  a\n  b", 'command: |\n  a\n  b\ncheckpoints: "c/*"\n'),
    "into a section": (
        "checkpoints:  # why\n    keep: 3\nname: a\n",
        'checkpoints:  # why\n    files: "c/*"\n    keep: 3\nname: a\n',
    ),
    "into a section in one line": (
        "checkpoints: {keep: 3} # why\nname: a\n",
        'checkpoints: {files: "c/*", keep: 3} # why\nname: a\n',
    ),
    "into a file in one line": ("{name: a, command: x}\n", '{checkpoints: "c/*", name: a, command: x}\n'),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_key_is_added_where_it_is_missing(case: str) -> None:
    before, after = TEXTS[case]
    assert with_keys(before, "job.yaml", {"checkpoints.files": "c/*"}) == after


def test_several_keys_are_added_in_their_order() -> None:
    assert with_keys("name: a\n", "job.yaml", {"checkpoints.files": "c", "outputs": ["a", "b/*"]}) == (
        'name: a\ncheckpoints: "c"\noutputs: ["a", "b/*"]\n'
    )
