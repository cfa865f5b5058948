"""Record what ends a Python process of the program or one of its children, for the supervisor.

Each Python from 3.8 imports this module at its start, because the ranks have its folder in PYTHONPATH. It
watches exceptions by an audit hook, since frameworks replace `sys.excepthook`, and the functions of `os` that
wait for children: their parent alone is told of a signal. Nothing else changes: the module of the same name
that the environment has runs, too.
"""

from __future__ import annotations

import os
import sys

FOLDER = "VASTRUN_UNCAUGHT"
"""Variable with the folder of the records; without it nothing is recorded."""
_MAX_RECORDS, _MAX_ENDS, _MAX_SENT = 64, 32, 1024
_SENT = ".sent.part"
"""Folder in it, never downloaded, with a file for each signal that the program sent: that is no failure."""
_MAX_CHAIN, _MAX_NAMES, _MAX_TEXT, _MAX_TRACEBACK = 8, 16, 4000, 20_000


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "sys.excepthook" and isinstance(args[2], BaseException):
        _try(_record, args[2])
    elif event in ("os.kill", "os.killpg") and args[1] and args[0] != os.getpid():
        _try(_write, f"{_SENT}/{args[0]}.{int(args[1])}.json", None, _MAX_SENT)  # type: ignore[call-overload]


def _try(write, *arguments) -> None:  # type: ignore[no-untyped-def]
    # Again, because the handler of a signal may raise in it: torch's does when a worker has died.
    for _ in range(3 if FOLDER in os.environ else 0):
        try:
            write(*arguments)
            break
        except Exception:  # noqa: BLE001 - it must not hide the program's own error
            continue


def _record(error: BaseException) -> None:
    limits = _limits()
    # Only where a program failed: each Python process of it imports this module.
    from traceback import format_exception, format_exception_only, walk_tb

    chain = [
        {
            "names": [each.__name__ for each in type(link).__mro__[:_MAX_NAMES]],
            "errno": link.errno if isinstance(link, OSError) else None,
            "text": "".join(format_exception_only(type(link), link))[:_MAX_TEXT],
        }
        for link in _chain(error)
    ]
    lines = format_exception(type(error), error, error.__traceback__)
    frames = [frame for frame, _ in walk_tb(_chain(error)[0].__traceback__)]
    record = {
        "traceback": "".join(lines).strip()[-_MAX_TRACEBACK:],
        "chain": chain,
        "module": str(frames[-1].f_globals.get("__name__")) if frames else "",
        "torch_cuda": getattr(sys.modules.get("torch.version"), "cuda", None),
        "limits": limits,
    }
    _write(f"{os.getpid()}.json", record, _MAX_RECORDS)


def _limits() -> str:
    """Return how many files and how much memory this process holds, of how many it may."""
    own = 1  # the listing itself
    try:
        os.close(os.open("/", os.O_RDONLY))
    except OSError:  # too many are open, and what follows needs one
        os.close(0)
        own = 0
    import resource

    opened = len(os.listdir("/proc/self/fd")) - own  # noqa: PTH208
    with open("/proc/self/status") as status:  # noqa: PTH123
        locked = sum(int(line.split()[1]) for line in status if line.startswith(("VmLck", "VmPin")))
    may = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
    return f"{opened} of {may[0]} open files, {locked} of {may[1] >> 10} KiB of locked memory"


def _write(name: str, record: dict[str, object] | None, most: int) -> None:
    import json
    import time

    path = os.path.join(os.environ[FOLDER], name)  # noqa: PTH118
    folder = os.path.dirname(path)  # noqa: PTH120
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    sent = os.path.join(folder, _SENT, os.path.basename(path))  # noqa: PTH118, PTH119
    if len(os.listdir(folder)) >= most or os.path.exists(sent):  # noqa: PTH110, PTH208
        return
    with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123 - known without another file
        json.dump(record and {"pid": os.getpid(), "at": time.time(), **record}, file)
    os.replace(f"{path}.part", path)  # noqa: PTH105


def _note_end(found):  # type: ignore[no-untyped-def]
    """Record a child that a signal ended, unless the program sent it, and return what was waited for."""
    child, status = found[:2]
    code = -(status & 0x7F) or status >> 8
    # A shell says by an exit code that a signal ended its program.
    if child and (code < 0 or 128 < code < 255):
        _try(_write, f"{child}.{-code}.json", {"child": child, "exit_code": code}, _MAX_ENDS)
    return found


def _chain(error: BaseException) -> list[BaseException]:
    """Return the errors from the first one, which caused the others."""
    found: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in found and len(found) < _MAX_CHAIN:
        found.insert(0, link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return found


def _watch_child() -> None:
    """Record what ends a process of multiprocessing, which prints it itself and exits with 1."""
    base = getattr(sys.modules.get("multiprocessing.process"), "BaseProcess", None)
    if base is None or hasattr(base, FOLDER):
        return
    start = base._bootstrap

    def bootstrap(process, *arguments, **named):  # type: ignore[no-untyped-def]
        run = process.run

        def run_and_record() -> None:
            try:
                run()
            except BaseException as error:
                # torch's spawn exits with 1 while it handles the error.
                handled = (error.code and error.__context__) if isinstance(error, SystemExit) else error
                _watch("sys.excepthook", (None, None, handled))
                raise

        process.run = run_and_record
        return start(process, *arguments, **named)

    setattr(base, FOLDER, True)
    base._bootstrap = bootstrap


def _run_the_next() -> None:
    """Import the module of this name that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [folder for folder in sys.path if folder != here]
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError:
        pass
    finally:
        sys.modules.setdefault(__name__, this)


if hasattr(sys, "addaudithook"):
    sys.addaudithook(_watch)
    os.register_at_fork(after_in_child=_watch_child)
    for name in ("wait", "waitpid", "wait3", "wait4"):
        setattr(os, name, lambda *a, _wait=os.__dict__[name], **k: _note_end(_wait(*a, **k)))
    if "--multiprocessing-fork" in getattr(sys, "argv", ()):  # another way than to fork
        import multiprocessing.process  # noqa: F401 - it is needed at once in any case

        _watch_child()
if __name__ == "sitecustomize":
    _run_the_next()
