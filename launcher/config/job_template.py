"""Job template: a first job file for a program, with comments by its imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vastrun.launcher.config.program_index import dotted
from vastrun.launcher.config.program_report import (
    ProgramReport,
    command_notes,
    file_lines,
    proof_files,
    quoted,
)
from vastrun.launcher.config.reached_code import mentioned, reached_code

SCHEMA_FILE = ".vastrun/job.schema.json"
"""Path of the schema in the first line, relative to the job file."""

_IN_IMAGE = frozenset(("torch", "numpy", "h5py", "matplotlib", "wandb", "pynvml", "vastrun", "triton"))
_PACKAGES = {
    "absl": "absl-py",
    "attr": "attrs",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "community": "python-louvain",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "hydra": "hydra-core",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "neuralop": "neuraloperator",
    "open_clip": "open-clip-torch",
    "OpenGL": "pyopengl",
    "OpenSSL": "pyopenssl",
    "physicsnemo": "nvidia-physicsnemo",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "pywt": "pywavelets",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "tltorch": "tensorly-torch",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Packages whose name differs from the imported module, whose own name may be another package's."""


_STARTS_RANKS = "torch.distributed.init_process_group"
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception")


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework that starts a program's ranks, and the advice for it."""

    name: str
    marks: tuple[str, ...]
    """Modules that only its programs import."""
    names: tuple[str, ...] = ()
    """Its functions and classes that start ranks, or what they take; empty: every use of it does."""
    ranks: str
    """Comment in the job file on how its ranks find each other."""
    callback: str = ""
    """Import that makes its programs report their steps; empty: they call `beat` themselves."""


FRAMEWORKS = (
    Framework(
        name="Lightning",
        marks=("lightning", "pytorch_lightning"),
        ranks='Trainer(devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp"): "auto" takes all GPUs.',
        callback="vastrun.integrations.lightning import LightningCallback",
    ),
    Framework(
        name="accelerate",
        marks=("accelerate",),
        names=("Accelerator", "AccelerateLoop", "PartialState"),
        ranks="Accelerator() finds the ranks that vastrun started: no `accelerate launch`.",
        callback="vastrun.integrations.accelerate import AccelerateLoop",
    ),
    Framework(
        name="Hugging Face's Trainer",
        marks=("transformers", "trl"),
        names=("Trainer", "TrainingArguments"),
        ranks="The Trainer finds the ranks that vastrun started: no `torchrun`.",
        callback="vastrun.integrations.transformers import TransformersCallback",
    ),
    Framework(
        name="DeepSpeed",
        marks=("deepspeed",),
        ranks="deepspeed.initialize() finds the ranks that vastrun started: no `deepspeed` command.",
    ),
    Framework(
        name="torch.distributed",
        marks=("torch.distributed",),
        ranks="init_process_group() finds the ranks that vastrun started: no `torchrun`.",
    ),
)
"""Known frameworks: the first that a program uses is its own."""
_ALONE = "The program does not look as if it trained in several processes: one is started."


@dataclass(frozen=True, kw_only=True)
class UserProgram:
    """Facts about a program that are known without running it."""

    path: str
    """From the folder of the job file, with `/`."""
    imports: Collection[str]
    """Every module that it and the modules of its folder import, dotted."""
    names: Collection[str] = ()
    """Names and attributes that it mentions where a run of it comes."""
    optional: Collection[str] = ()
    """Modules that it does without: each import of them is in a `try` that expects ImportError."""
    own: Collection[str] = ()
    """Names of its modules and of their folders."""
    is_module: bool = False
    """True for a file of a package that imports others of it by `from .name`: Python runs it with -m."""
    needs_folder: bool = False
    """True if it imports modules of the job file's folder, which Python does not search for it."""

    @property
    def framework(self) -> Framework | None:
        """Return the framework that starts its ranks; None: it is a single process."""
        return next(filter(self._is_started_by, FRAMEWORKS), None)

    def _is_started_by(self, framework: Framework) -> bool:
        # `Seq2SeqTrainer` is a Trainer, too.
        is_named = not framework.names or any(name.endswith(framework.names) for name in self.names)
        return is_named and any(map(self._uses, framework.marks))

    def packages(self, own: Collection[str]) -> list[str]:
        """Return the packages that the image lacks. `own`: names of further modules of the folder."""
        tops = {name.partition(".")[0] for name in self.imports}
        missing = tops - {name.partition(".")[0] for name in self.optional} - {*own, *self.own}
        packages = {_PACKAGES.get(name, name) for name in missing - sys.stdlib_module_names}
        return sorted(packages - _IN_IMAGE)

    def uses_wandb(self) -> bool:
        """Return whether it reports to W&B, which needs a key."""
        return self._uses("wandb")

    def beats(self) -> bool:
        """Return whether it reports its steps by `vastrun.beat`."""
        return self._uses("vastrun")

    def _uses(self, module: str) -> bool:
        return any(name == module or name.startswith(f"{module}.") for name in self.imports)


def read_program(path: str, modules: Mapping[str, ast.Module], *, needs_folder: bool = False) -> UserProgram:
    """Return what a program imports, at any depth of its code. `modules`: it and its own modules, by path."""
    needed: set[str] = set()
    optional: set[str] = set()
    for tree in modules.values():
        for name, is_optional in _imports(tree):
            (optional if is_optional else needed).add(name)
    return UserProgram(
        path=path,
        imports=frozenset(needed | optional),
        names=frozenset(name for tree in reached_code(modules).values() for name in mentioned(tree)),
        optional=frozenset(optional - needed),
        own=frozenset(part for module in modules for part in PurePosixPath(module).with_suffix("").parts),
        is_module="/" in path and any(_is_relative(node) for node in ast.walk(modules[path])),
        needs_folder=needs_folder,
    )


def _is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def _imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each imported module, and whether the program does without it."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_optional = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_optional) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from torch import distributed` imports torch.distributed.
            names = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            yield from ((name, is_optional) for name in names)
        elif isinstance(node, ast.Attribute) and dotted(node) == _STARTS_RANKS:
            yield _STARTS_RANKS.rpartition(".")[0], is_optional  # of a program that imports torch alone
        tried = (
            node.body if isinstance(node, ast.Try) and any(map(_expects_import_error, node.handlers)) else ()
        )
        waiting += [(child, is_optional or child in tried) for child in ast.iter_child_nodes(node)]


def _expects_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)


def program_job(
    program: UserProgram,
    report: ProgramReport,
    *,
    name: str,
    setup: str | None,
    setup_notes: Iterable[str] = (),
) -> str:
    """Return a job file for the user's own program.

    `setup`: the command that installs its packages. `setup_notes`: sentences above it.
    """
    framework = program.framework
    if report.spawn:
        note = f"The program starts its processes itself, by mp.spawn in {report.spawn}: one is started."
    else:
        note = framework.ranks if framework else _ALONE
    is_alone = framework is None or report.spawn
    ranks = ["ranks: 1"] if is_alone else ["# ranks: 2     # as many as GPUs when not given"]
    lines = [
        *_head(name),
        "code:",
        "  path: .        # shipped: in a git checkout, what git tracks or would track",
        "",
        *_setup_lines(setup, list(setup_notes)),
        f"# {note}",
        *ranks,
        *command_notes(report),
        f"command: {quoted(' '.join(filter(None, (_command(program), report.options))))}",
        *(["env: {PYTHONPATH: .}   # it imports modules of this folder"] if program.needs_folder else []),
        "",
        "# What proves that it worked. Name the last step, a file or a line of the log as soon as you can.",
        "success:",
        *_steps(program),
        f"  # files: {quoted(proof_files(report)):<23}  # must be there, and not empty",
        "  # log: 'final loss 0\\.\\d+'       # a regular expression that rank 0's log must contain",
        "  exit_code: 0                     # alone it proves little: the verdict then says so",
        "",
        *file_lines(report),
    ]
    if program.uses_wandb():
        lines += ["", "secrets: WANDB_API_KEY   # taken from your environment; never stored"]
    return "\n".join(lines) + "\n"


def _setup_lines(setup: str | None, notes: Sequence[str]) -> Iterator[str]:
    if setup is None:
        return
    yield from (f"# {note}" for note in notes)
    yield f"setup: {quoted(setup)}   # before the training{'' if notes else '; torch is there already'}"
    yield ""


def trainer_job(name: str) -> str:
    """Return a job file for the onboard trainer."""
    lines = [
        *_head(name),
        "# The onboard trainer: a neural operator of a PDE, on data that its own solver makes.",
        "train:",
        "  steps: 1500",
        "  batch: 48          # windows a turn over all ranks; a multiple of the ranks",
        "  data:",
        "    task: advection  # or another of docs/data.md: burgers, darcy, shallow_water, …",
        "  # model: {name: spectral, dim: 24, depth: 4}   # often the most accurate on one task",
        "  # optim: {lr: 3e-3}",
        "  # wandb: {mode: online}    # needs secrets: WANDB_API_KEY",
    ]
    return "\n".join(lines) + "\n"


def job_name(text: str) -> str:
    """Return a valid job name, made from the name of a folder or a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:63] or "job"


def _head(name: str) -> list[str]:
    return [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"name: {quoted(name)}",
        "",
        "resources:",
        "  gpus: 1          # 0 trains on the CPU",
        "  # gpu_names: [RTX 4090, A100 SXM4]   # as Vast prints them; any when not given",
        "  # gpu_memory_gb: 20                  # of each GPU, at least",
        "  disk_gb: 40",
        "",
        "limits:",
        "  usd: 5           # for the whole run, retries included; the machine enforces it",
        "  hours: 4",
        "  stall_s: 600     # a rank without progress for this time is hung",
        "",
    ]


def _steps(program: UserProgram) -> list[str]:
    if program.beats():
        return ["  # steps: 1000                   # the step that every rank must report by vastrun.beat"]
    callback = program.framework.callback if program.framework else ""
    needs = f"`from {callback}`:" if callback else "`from vastrun import beat` and beat(step) in the loop:"
    return [
        f"  # steps: 1000                   # needs {needs}",
        "  #                               # then a rank that hangs is named, and progress is shown",
    ]


def _command(program: UserProgram) -> str:
    module = program.path.removesuffix(".py").replace("/", ".")
    if program.is_module and re.fullmatch(r"\w+(?:\.\w+)+", module):
        return f"python -m {module}"
    plain = re.fullmatch(r"[A-Za-z0-9_./-]+", program.path)
    return f"python {program.path}" if plain else f"python '{program.path}'"
