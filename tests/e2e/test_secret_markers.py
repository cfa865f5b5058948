"""A marker in each place of a job where a secret can stand: it is in nothing that is written or shown."""

import gzip
import hashlib
import io
import signal
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.terminal import STUB_TORCH, Terminal
from tests.launcher.notifications.inbox import Inbox, inbox
from tests.onstart.transfer.file_server import FileServer, serving
from tests.waiting import Watch

CONTENT = b"1 2 3\n" * 1000
PLACES = (
    *("secret from the environment", "secret from a file", "secret from a command", "variable by its name"),
    *("variable with a login", "variable with a token", "credential of data", "signature of data"),
    *("unnamed part of data", "key of push", "token of push", "key of start_from", "path of notify"),
    *("query of notify", "notify from the environment", "command of notify", "assignment in setup"),
    *("token in setup", "assignment in the command", "option of the command"),
)
IN_COMMAND = PLACES[-4:]
JOB = """\
name: marked
resources: {{gpus: 0, disk_gb: 8}}
ranks: 1
limits: {{hours: 0.1, usd: 1}}
env:
  PYTHONPATH: {torch}
  MY_PASSWORD: {variable by its name}
  DATABASE: postgresql://annabel:{variable with a login}@db.example/runs
  PLAIN: hf_{variable with a token}
secrets:
  - USER_LOGIN
  - {{name: OTHER_LOGIN, env_file: {vault}/.env}}
  - {{name: THIRD_LOGIN, command: cat {vault}/third}}
data:
  - url: "{url}?X-Amz-Credential={credential of data}&p={unnamed part of data}\\
      &X-Amz-Signature={signature of data}"
    path: numbers.txt
    sha256: {sha256}
    size: {size}
checkpoints:
  files: "*.pt"
  push: nowhere://bucket/runs?key={key of push}&token={token of push}
{start}
notify:
  - {hook}/{path of notify}?x={query of notify}
  - {{url_env: MY_HOOK}}
setup:
  - export INDEX_TOKEN={assignment in setup}
  - "true ghp_{token in setup}"
command: >-
  APP_SECRET={assignment in the command} sh -c 'echo $0 is here; {end}' program
  --api-key {option of the command}
success: {{log: program is here}}
"""
READ = (
    *("plan job.yaml", "plan job.yaml --json", "status", "status --all --json", "status last --json"),
    *("why last", "why last --json", "cost --json", "report last", "diff first last --json", "logs last"),
    *("hosts --json", "bugreport last", "doctor --json", "config"),
)
PLAIN_JOB = """\
name: plain
resources: {{gpus: 0, disk_gb: 8}}
ranks: 1
limits: {{hours: 0.1, usd: 1}}
env: {{PYTHONPATH: {torch}}}
command: echo it is here
success: {{log: it is here}}
"""
READ_BATCH = (
    *("batch status marked", "batch status marked --json", "batch status --json", "batch results marked"),
    *("batch results marked --json", "batch results marked --csv", "report marked", "bugreport last"),
)


class Processes(Watch):
    """Notes the arguments of all processes."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def look(self) -> None:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                self.seen.add(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as state:
        yield state


def markers_of(terminal: Terminal) -> dict[str, str]:
    """The marker of each place, for this test alone: others may run meanwhile."""
    names = {place: f"{terminal.folder} {place}".encode() for place in PLACES}
    return {place: "m" + hashlib.sha256(name).hexdigest()[:39] for place, name in names.items()}


def write_job(terminal: Terminal, server: FileServer, hook: Inbox, *, fails: bool, starts: bool) -> None:
    markers, vault = markers_of(terminal), terminal.folder.parent / "vault"
    vault.mkdir(exist_ok=True)
    (vault / ".env").write_text(f"OTHER_LOGIN={markers['secret from a file']}\n")
    (vault / "third").write_text(markers["secret from a command"] + "\n")
    terminal.variables |= {
        "USER_LOGIN": markers["secret from the environment"],
        "MY_HOOK": f"{hook.url}/{markers['notify from the environment']}",
        "VASTRUN_NOTIFY_COMMAND": f": {markers['command of notify']}; cat",
    }
    start = f"  start_from: nowhere://bucket/before?key={markers['key of start_from']}" if starts else ""
    job = JOB.format(
        **markers,
        vault=vault,
        url=server.url,
        hook=hook.url,
        torch=STUB_TORCH,
        start=start,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        end="exit 3" if fails else "touch a.pt",
    )
    (terminal.folder / "job.yaml").write_text(job)


def pages(terminal: Terminal, *names: str) -> dict[str, str]:
    """What a browser is sent of those pages."""
    server = terminal.start("ui")
    assert server.process.stdout is not None
    address = server.process.stdout.readline().strip()
    found = {f"ui {name}": urlopen(address + name).read().decode() for name in names}
    server.send(signal.SIGINT)
    server.end()
    return found


def leaks(terminal: Terminal, shown: Mapping[str, str], processes: Processes) -> list[str]:
    """Where a marker is to be seen, in what was shown and in all files of the terminal's folder.

    Left out are the job file; the ledger, from which the run is driven on; and in the list of processes what
    the user wrote into their commands: those are the command lines of their own programs.
    """
    markers = markers_of(terminal).items()
    texts = [(where, text.encode()) for where, text in shown.items()]
    texts += [(f"the arguments {line}", line.encode()) for line in processes.seen]
    for path in terminal.folder.rglob("*"):
        if path.is_file() and path.name != "job.yaml" and not path.name.startswith("ledger.db"):
            texts += [(str(path), text) for text in (str(path).encode(), *contents(path.read_bytes()))]
    return [
        f"{place} in {where}"
        for where, text in texts
        for place, marker in markers
        if marker.encode() in text and not (place in IN_COMMAND and where.startswith("the arguments"))
    ]


def contents(content: bytes) -> Iterator[bytes]:
    """The content, and that of all within it where it is an archive."""
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield from contents(gzip.decompress(content))
    elif content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from contents(archive.read(name))
    elif content[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                if (file := archive.extractfile(member)) is not None:
                    yield from contents(file.read())


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["well", "badly", "before it starts"])
@pytest.mark.parametrize("provider", ["local", "vast"])
def test_no_marker_is_in_what_is_written_or_shown(
    provider: str, ends: str, rented: Terminal, server: FileServer
) -> None:
    (rented.folder / "tmp").mkdir()
    rented.variables["TMPDIR"] = str(rented.folder / "tmp")
    shown: dict[str, str] = {}
    with inbox() as hook, Processes() as processes:
        write_job(rented, server, hook, fails=ends == "badly", starts=ends == "before it starts")
        launch = ("launch", "job.yaml", "--provider", provider, "-y")
        runs: list[str] = []
        for words in (("attach", "last"), launch):
            if words != launch:
                begun = rented.type(*launch, "--detach")
                assert begun.exit_code in (0, 5), begun.err
                shown["launch --detach"] = begun.out + begun.err
            done = rented.type(*words)
            assert done.exit_code == (0 if ends == "well" else 5), done.err
            shown[words[0]] = done.out + done.err
            runs.append(rented.status()["run"]["id"])
        for words in READ:
            more = ("--provider", provider) if words.startswith("plan") else ()
            done = rented.type(*words.replace("first", runs[0]).split(), *more)
            shown[words] = done.out + done.err
            assert done.exit_code == 0, f"{words}: {done.err}"
        shown |= pages(rented, *("", *(f"run/{run}" for run in runs)))
        shown["notifications"] = "\n".join(letter.body.decode() for letter in hook.letters)
    assert "marked" in shown["notifications"] and "<secret>" in shown["plan job.yaml --json"]
    assert list(rented.folder.rglob("bugreport-*.tar.gz")) and list(rented.folder.rglob("report.html"))
    found = leaks(rented, shown, processes)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_no_marker_of_a_batchs_values_is_written_or_shown(terminal: Terminal, server: FileServer) -> None:
    (terminal.folder / "job.yaml").write_text(PLAIN_JOB.format(torch=STUB_TORCH))
    names = ("variable by its name", "variable with a token", "variable with a login")
    by_name, token, login = (markers_of(terminal)[name] for name in names)
    values = (f"env.MY_PASSWORD={by_name},short", f"env.PLAIN=hf_{token},http://me:{login}@h.example/x")
    shown: dict[str, str] = {}
    with Processes() as processes:
        sweep = ("sweep", "job.yaml", *values, "--provider", "local", "-y", "--name", "marked")
        for words in (sweep, *(words.split() for words in READ_BATCH)):
            done = terminal.type(*words)
            assert done.exit_code == 0, f"{words}: {done.err}"
            shown[words[0] if words is sweep else " ".join(words)] = done.out + done.err
    assert "<secret>" in shown["batch results marked"]
    # What the user types is in the arguments of their own command.
    processes.seen = {line for line in processes.seen if "sweep" not in line}
    found = leaks(terminal, shown, processes)
    assert not found, "\n".join(found)
