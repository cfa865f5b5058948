"""A repository whose settings, hooks and attributes name a program, and whose index names any file."""

import hashlib
import re
import subprocess
from pathlib import Path

from tests.launcher.bundle.bundles import git


def put_into_index(checkout: Path, name: str, git_dir: str = ".git") -> None:
    """Add a file to the index under any name, which git refuses to do."""
    placeholder = "~" * len(name)
    (checkout / placeholder).write_text("x")
    git(checkout, "add", placeholder)
    (checkout / placeholder).unlink()
    index = checkout / git_dir / "index"
    content = index.read_bytes()[:-20].replace(placeholder.encode(), name.encode())
    index.write_bytes(content + hashlib.sha1(content).digest())


class Traps:
    """A program that leaves a mark, as the value of settings of a repository."""

    def __init__(self, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.program = folder / "trap"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >"{self.marks}/$$"\ncat\n')
        self.program.chmod(0o755)

    def set(self, checkout: Path) -> None:
        """Set all settings that git documents, the hooks and the attributes, in `.git` alone."""
        keys = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout
        lines = []
        for key in sorted(set(re.findall(r"(?m)^[a-z]\w*\.[^\s_]+$", keys))):
            section, _, rest = re.sub(r"<[^>]*>|\*", "x", key).partition(".")
            inner, _, name = rest.rpartition(".")
            lines.append(f'[{section} "{inner}"]' if inner else f"[{section}]")
            lines.append(f'{name} = "{self.program}"')
        lines += ["[extensions]", "worktreeConfig = true", "[include]", 'path = "more"']
        common = ['[filter "x"]', "required = true", "[core]", "fsmonitorHookVersion = 1"]
        folder = checkout / ".git"
        (folder / "config").write_text("\n".join([*lines, *common]))
        for name in ("more", "config.worktree"):
            (folder / name).write_text("\n".join([f'[filter "x"]\nclean = "{self.program}"', *lines]))
        for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit", "reference-transaction"):
            (folder / "hooks").mkdir(exist_ok=True)
            (folder / "hooks" / hook).unlink(missing_ok=True)
            (folder / "hooks" / hook).symlink_to(self.program)
        (folder / "info" / "attributes").write_text("* filter=x diff=x merge=x\n")

    @property
    def sprung(self) -> list[str]:
        return [mark.read_text() for mark in self.marks.iterdir()]


def make_dirty(checkout: Path) -> None:
    """Have git compare contents, for which it runs filters."""
    (checkout / "train.py").write_text("print('other')\n")
    (checkout / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
