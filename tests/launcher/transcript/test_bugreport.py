"""`bugreport`: one file of what is known of a run, and nothing private is in it."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

from tests.launcher.terminal import CRASH, Terminal
from vastrun.launcher.app import App


class Desk(Terminal):
    """A desk whose folders and user have names, and whose environment has a key."""

    def app(self) -> App:
        words = {str(self.folder): "~", "annabel": "<user>"}
        return super().app().with_changes(secrets=lambda: ["sk-very-secret"], private_words=lambda: words)


def test_a_bug_report_is_one_file_that_says_what_is_in_it(tmp_path: Path) -> None:
    def says(line: str) -> str:
        return f"{line} annabel sk-very-secret {tmp_path}/data abcdefgh"

    terminal = Desk(tmp_path, replace(CRASH, says=says))
    terminal.job.write_text(terminal.job.read_text() + "env: {MY_API_KEY: abcdefgh}\n")
    terminal.launch()
    file = tmp_path / "report.tar.gz"
    end = terminal.type("bugreport", "last", "--output", str(file))
    assert end.exit_code == 0, end.stderr
    with tarfile.open(file) as archive:
        texts = {Path(member.name).name: read(archive, member) for member in archive}
    assert {"transcript.jsonl", "run.json", "events.jsonl", "job.json", "outcome.json"} <= texts.keys()
    assert {"log.txt", "versions.json", "doctor.txt"} <= texts.keys()
    for name, text in texts.items():
        assert f"{name} " in end.stdout
        assert not any(
            private in text for private in ("annabel", "sk-very-secret", "abcdefgh", str(tmp_path))
        ), name
    assert json.loads(texts["run.json"])["verdict"] == "FAILED"
    assert "step 9 <user> <secret> ~/data <secret>" in texts["log.txt"]


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member) or io.BytesIO()
    return content.read().decode()


def test_a_log_is_left_out_where_the_secrets_of_the_job_are_not_known_any_more(terminal: Terminal) -> None:
    from tests.fake_outputs import FakePacker
    from vastrun.launcher.core.errors import UsageError

    class Forgetful(FakePacker):
        def secrets(self, spec: object, run: object = None) -> bytes:
            raise UsageError("TOKEN is not set")

    terminal.launch()
    app = terminal.app().with_changes(packer=lambda _: Forgetful(terminal.folder))
    terminal.app = lambda: app  # type: ignore[method-assign]
    file = terminal.folder / "report.tar.gz"
    assert terminal.type("bugreport", "last", "--output", str(file)).exit_code == 0
    with tarfile.open(file) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert "transcript.jsonl" in names and "log.txt" not in names
