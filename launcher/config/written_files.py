"""Written files: where a Python program writes, by its text. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from posixpath import commonprefix

from vastrun.launcher.config.path_values import PathReader, glob_of
from vastrun.launcher.config.program_index import Call, ProgramIndex
from vastrun.launcher.config.write_calls import ALL_BELOW, OUTPUT_FOLDER, WriteTarget, targets_of

_STATE = re.compile(r"ckpt|checkpoint|snapshot|resume|(?<![a-z])(?:last|latest|step|epoch|iter|state)", re.I)
"""Names of files from which a training continues."""
CHECKPOINT_FOLDER = re.compile(r"(?:ckpt|checkpoint|snapshot)s?[-_]?(?:dir|folder|directory)")
"""Names of options that say where checkpoints go."""
_MAX_NAMED = 8
_TEMPORARY = ("/dev/", "/tmp/", "/proc/")
_PLAIN_SAVES = ("save", "open", "export")


@dataclass(frozen=True, kw_only=True)
class Write:
    """A file or folder that the program writes."""

    pattern: str
    """A glob in the code folder or below `$VASTRUN_OUTPUTS`, or a path elsewhere; empty: not known."""
    file: str
    """The file of the program that has the call."""
    line: int
    by: str
    """Name of the call or option, like `torch.save`."""
    is_checkpoint: bool
    by_name: bool = False
    """True: if it is renamed, the new name decides whether it is a checkpoint."""
    is_certain: bool = True
    """False: only the name of an option or a keyword suggests it."""

    @property
    def is_outside(self) -> bool:
        """Tell whether it lies outside of the code folder."""
        return self.pattern.startswith(("/", "~", "..")) or re.match(r"[A-Za-z]:", self.pattern) is not None


@dataclass(frozen=True, kw_only=True)
class WrittenFiles:
    """Places where a program writes."""

    checkpoint: Write | None = None
    """Checkpoint that it can continue from."""
    inside: tuple[str, ...] = ()
    """Globs of everything else in the code folder, which is downloaded."""
    outside: tuple[Write, ...] = ()
    """Files outside of the code folder, which are not downloaded."""
    unknown: tuple[Write, ...] = ()
    """Calls whose paths only a run shows."""


def written_files(index: ProgramIndex, reader: PathReader) -> WrittenFiles:
    """Return where the program of this index writes."""
    writes = sorted(_renamed(index, reader), key=lambda write: not write.is_certain)
    known = [write for write in writes if write.pattern and not _is_elsewhere(write.pattern)]
    inside = [write for write in known if not write.is_outside]
    checkpoint = _checkpoint([write for write in inside if write.is_checkpoint], inside)
    return WrittenFiles(
        checkpoint=checkpoint,
        inside=tuple(dict.fromkeys(write.pattern for write in inside if not write.is_checkpoint)),
        outside=_each_once(write for write in known if write.is_outside),
        unknown=_each_once(write for write in writes if not write.pattern),
    )


def _renamed(index: ProgramIndex, reader: PathReader) -> Iterator[Write]:
    """Yield what is written, by its final name: a careful program renames its files."""
    final: dict[str, str] = {}
    for call in (*index.called.get("replace", []), *index.called.get("rename", [])):
        owner = getattr(call.node.func, "value", None)
        source, target = call.argument(0, "src"), call.argument(1, "dst")
        if call.name.partition(".")[0] != "os":
            if target is not None:
                continue  # of a string
            source, target = owner, call.argument(0, "target")
        for old, new in zip(reader.paths(source, call.scope), reader.paths(target, call.scope), strict=False):
            if name := glob_of(new):
                final.setdefault(glob_of(old), name)
    for write in _writes(index, reader):
        folder = next((old for old in final if write.pattern.startswith(f"{old}/")), None)
        if folder is not None and _is_state(final[folder]):  # the folder is the checkpoint, with all in it
            yield replace(write, pattern=final[folder], is_checkpoint=True)
            continue
        name = final.get(write.pattern) or write.pattern
        if folder is not None:
            name = final[folder] + write.pattern.removeprefix(folder)
        is_state = write.by_name and _is_state(name)
        yield replace(write, pattern=name, is_checkpoint=write.is_checkpoint or is_state)


def _writes(index: ProgramIndex, reader: PathReader) -> Iterator[Write]:
    for call in index.calls:
        for target in targets_of(index, call):
            values = [""] if target.node is None else reader.paths(target.node, call.scope)
            written = [_write(call, target, value) for value in values]
            for write in _as_one(written):
                is_file = "." in write.pattern.rpartition("/")[2]
                if not target.is_guess or (write.pattern and (target.below or is_file)):
                    yield write
    for option in index.options:
        is_checkpoint = CHECKPOINT_FOLDER.fullmatch(option.name) is not None
        if not option.is_switch and (is_checkpoint or OUTPUT_FOLDER.fullmatch(option.name)):
            value_set = reader.option_values.get(option.name)
            for value in [value_set] if value_set else reader.defaults(option):
                if pattern := glob_of(value, "*" if is_checkpoint else ALL_BELOW):
                    yield Write(
                        pattern=pattern,
                        file="",
                        line=0,
                        by=option.flag,
                        is_checkpoint=is_checkpoint,
                        is_certain=False,
                    )


def _write(call: Call, target: WriteTarget, value: str) -> Write:
    pattern = glob_of(value, target.below)
    if call.last == "save" and call.name.startswith("n") and pattern and not PurePosixPath(pattern).suffix:
        pattern += ".npy"
    return Write(
        pattern=pattern,
        file=call.file,
        line=call.node.lineno,
        by=call.name.lstrip("."),
        is_checkpoint=target.is_checkpoint or (target.by_name and _is_state(pattern)),
        by_name=target.by_name,
        is_certain=target.is_certain,
    )


def _as_one(writes: Sequence[Write]) -> Sequence[Write]:
    """Return one glob for the checkpoints of a call whose values differ in folders below the same one."""
    parts = [write.pattern.split("/") for write in writes if write.is_checkpoint and write.pattern]
    if len(parts) < max(2, len(writes)) or len({(len(each), each[0], each[-1]) for each in parts}) > 1:
        return writes
    names = [same[0] if len(set(same)) == 1 else "*" for same in zip(*parts, strict=True)]
    return [replace(writes[0], pattern="/".join(names))]


def _is_state(pattern: str) -> bool:
    name = PurePosixPath(pattern).name
    return "*" in name or _STATE.search(name) is not None


def _is_elsewhere(pattern: str) -> bool:
    """Tell whether it cannot be missed: a URL, a device, or a temporary file."""
    return re.match(r"\w{2,}:/", pattern) is not None or pattern.startswith(_TEMPORARY)


def _checkpoint(candidates: Sequence[Write], writes: Sequence[Write]) -> Write | None:
    """Return the most likely candidate; if several in its folder end alike, the glob of all."""
    certain = [write for write in candidates if write.is_certain] or list(candidates)
    if not certain:
        return None
    # The program itself comes before its modules.
    main = [write for write in certain if write.file == certain[0].file]
    best = max(main, key=_rank)
    # A call whose folder may be empty, by an option that is not set, usually has another one.
    best = max(
        (write for write in main if (write.line, write.by) == (best.line, best.by)),
        key=lambda write: (_rank(write), write.pattern.count("/")),
    )
    path = PurePosixPath(best.pattern)
    folder, ending = _shape(best.pattern)
    beside = {write.pattern for write in writes if _shape(write.pattern)[0] == folder and write.by == best.by}
    if len(beside) > 1 and "*" in path.parent.name and "*" not in path.name:
        return replace(best, pattern=folder)  # one checkpoint of several files is their folder
    same_shape = {write.pattern for write in certain if _shape(write.pattern) == (folder, ending)}
    if len(same_shape) == 1 or "*" in folder or not ending:
        return best
    stems = [PurePosixPath(pattern).name.removesuffix(ending) for pattern in same_shape]
    common = commonprefix(stems).partition("*")[0]
    return replace(best, pattern=str(path.parent / f"{common}*{ending}"))


def _rank(write: Write) -> int:
    """Return how likely a program continues from it: what its framework saves comes first."""
    if write.by.rpartition(".")[2] not in _PLAIN_SAVES:
        return 3
    name = PurePosixPath(write.pattern).name
    return 0 if "best" in name.lower() else 1 + ("*" in name)


def _shape(pattern: str) -> tuple[str, str]:
    """Return the folder and the ending of a pattern."""
    path = PurePosixPath(pattern)
    return str(path.parent), "" if "*" in path.suffix else path.suffix


def _each_once(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple({(write.pattern, write.line): write for write in writes}.values())[:_MAX_NAMED]
