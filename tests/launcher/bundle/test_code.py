"""The code that a bundle ships: what git tracks, or all but caches, outputs and secrets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.bundle.bundles import SPEC, git, job_with, packed, run_of, shipped_code, write_files
from tests.rights import like_anybody
from vastrun.contract import layout
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.checkout import LIMIT_BYTES
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Secret
from vastrun.launcher.outputs.store import FolderStore


def test_without_git_all_but_caches_and_outputs_is_code(code: Path) -> None:
    left_out = (".venv/x.py", "runs/a/log", "__pycache__/t.pyc", "node_modules/a.js", "env/pyvenv.cfg")
    write_files(code, dict.fromkeys((*left_out, "pkg/.DS_Store", "pkg/a.py"), "x"))
    shipped = shipped_code(job_with(code))
    assert list(shipped) == ["pkg/a.py", "run.sh", "train.py"]
    assert (shipped["run.sh"].mode, shipped["train.py"].mode) == (0o755, 0o644)


def test_in_a_checkout_the_code_is_what_git_tracks_or_would_track(checkout: Path) -> None:
    write_files(checkout, dict.fromkeys(("new.py", "big.log", "runs/old"), "x"))
    (checkout / "run.sh").unlink()
    assert list(shipped_code(job_with(checkout))) == [".gitignore", "new.py", "train.py"]


def test_what_the_finder_leaves_is_no_code_though_git_tracks_it(checkout: Path) -> None:
    (checkout / ".DS_Store").write_text("x")
    git(checkout, "add", ".DS_Store")
    assert ".DS_Store" not in shipped_code(job_with(checkout))


def test_the_job_says_at_which_commit_the_code_stands(checkout: Path) -> None:
    clean = json.loads(packed(job_with(checkout))[layout.JOB])["code"]
    (checkout / "train.py").write_text("changed")
    dirty = json.loads(packed(job_with(checkout))[layout.JOB])["code"]
    assert (clean["dirty"], dirty["dirty"]) == (False, True)
    assert clean["commit"] == dirty["commit"]
    assert len(clean["commit"]) == 40


def test_a_folder_inside_a_checkout_ships_only_itself(checkout: Path) -> None:
    write_files(checkout, {"part/a.py": "x"})
    assert list(shipped_code(job_with(checkout / "part"))) == ["a.py"]


def test_a_checkout_that_git_cannot_read_is_not_taken_for_a_plain_folder(checkout: Path) -> None:
    (checkout / ".git" / "HEAD").unlink()
    with pytest.raises(UsageError, match="git cannot read"):
        packed(job_with(checkout))


def test_a_folder_that_git_ignores_says_so(checkout: Path) -> None:
    write_files(checkout, {"part/a.log": "x"})
    with pytest.raises(UsageError, match="has no file to upload") as caught:
        packed(job_with(checkout / "part"))
    assert caught.value.hint == "git ignores everything in it"


def test_a_submodule_is_shipped_with_its_files(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_files(other, {"lib.py": "x"})
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(checkout, "submodule", "add", "-q", str(other), "vendor/other")
    assert "vendor/other/lib.py" in shipped_code(job_with(checkout))
    git(checkout, "submodule", "deinit", "-q", "-f", "vendor/other")
    assert "vendor/other/lib.py" not in shipped_code(job_with(checkout))


def test_what_is_excluded_stays_here(code: Path) -> None:
    write_files(code, dict.fromkeys(("data/a/b.bin", "keep/model.pt", "keep/a.py"), "x"))
    assert list(shipped_code(job_with(code, "data", "*.pt", "run.sh"))) == ["keep/a.py", "train.py"]


@pytest.mark.parametrize("folder", ["code", "checkout"])
def test_what_earlier_runs_brought_home_is_not_shipped(folder: str, request: pytest.FixtureRequest) -> None:
    code = request.getfixturevalue(folder)
    out = code / "results" / "calm-heron"
    FolderStore().check(run_of(SPEC, str(out)))
    (out / "run.log").write_text("x")
    assert not [name for name in shipped_code(job_with(code)) if name.startswith("results")]


def test_a_link_inside_the_code_stays_a_link(code: Path) -> None:
    (code / "link.py").symlink_to(code / "train.py")
    link = shipped_code(job_with(code))["link.py"]
    assert (link.issym(), link.linkname) == (True, "train.py")


def test_a_link_that_leads_out_of_the_code_is_refused(code: Path) -> None:
    (code / "secret").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="secret points out of its folder, to /etc/hostname"):
        packed(job_with(code))
    assert "secret" not in shipped_code(job_with(code, "secret"))


def test_a_link_that_goes_in_a_circle_does_not_hang(code: Path) -> None:
    (code / "a").symlink_to("b")
    (code / "b").symlink_to("a")
    assert {"a", "b"} <= set(shipped_code(job_with(code)))


def test_too_much_code_names_its_largest_part(code: Path) -> None:
    (code / "data").mkdir()
    with (code / "data" / "train.h5").open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    with pytest.raises(UsageError, match=r"500 MB; the largest part is data with 500 MB") as caught:
        packed(job_with(code))
    assert "exclude: [data]" in caught.value.hint


def test_a_file_that_cannot_be_read_is_named(code: Path) -> None:
    (code / "train.py").chmod(0)
    with like_anybody(), pytest.raises(UsageError, match=r"cannot read .*/train.py: Permission denied"):
        packed(job_with(code))


def test_no_code_to_ship_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        packed(job_with(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no file to upload"):
        packed(job_with(tmp_path / "empty"))


@pytest.mark.parametrize("place", ["code", "checkout"])
def test_the_files_of_secrets_stay_here_though_they_lie_in_the_code(
    place: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(place)
    held = {".env": "TOKEN=hunter2\n", "key.txt": "hunter2\n"}
    write_files(folder, {**held, "sub/key.txt": "harmless=1\n"})
    (folder / "link.txt").symlink_to(folder / "key.txt")
    secrets = (
        Secret(name="TOKEN", env_file=str(folder / "sub" / ".." / ".env")),
        Secret(name="KEY", file=str(folder / "key.txt")),
    )
    spec = replace(job_with(folder), secrets=secrets)
    Bundler({}).check(spec)
    names = shipped_code(spec).keys()
    assert "sub/key.txt" in names and "train.py" in names
    assert names.isdisjoint({".env", "key.txt", "link.txt"})
