"""Job template: a first job file for a program, with comments by its imports."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vastrun.contract.program_kind import Program
from vastrun.launcher.config.command import ProgramImports

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


@dataclass(frozen=True, kw_only=True)
class UserProgram:
    """A program, as its own imports show it."""

    path: str
    """From the folder of the job file, with `/`."""
    imports: ProgramImports
    needs_folder: bool = False
    """True if it imports modules of the job file's folder, which Python does not search for it."""

    def packages(self, own: Collection[str]) -> list[str]:
        """Return the packages that the image lacks. `own`: names of modules of the folder."""
        missing = {name.partition(".")[0] for name in self.imports.needed} - {*own}
        packages = {_PACKAGES.get(name, name) for name in missing - sys.stdlib_module_names}
        return sorted(packages - _IN_IMAGE)


def program_job(program: UserProgram, *, name: str, setup: str | None, setup_notes: Sequence[str]) -> str:
    """Return a job file for the user's own program.

    `setup`: the command that installs its packages. `setup_notes`: sentences above it.
    """
    lines = [
        *_head(name),
        "code:",
        "  path: .        # shipped: in a git checkout, what git tracks or would track",
        "",
        *_setup_lines(setup, setup_notes, has_torch=program.imports.uses("torch")),
        "# ranks: 1       # processes of the command on a machine; one for each GPU when not given",
        "# init_process_group() and what calls it find the ranks that vastrun starts: no `torchrun`.",
        f"command: {quoted(_command(program))}",
        *(["env: {PYTHONPATH: .}   # it imports modules of this folder"] if program.needs_folder else []),
        "",
        "# What proves that it worked. Name the last step, a file or a line of the log as soon as you can.",
        "success:",
        *_steps(program),
        "  # files: results/model.pt       # must be there, and not empty",
        "  # log: 'final loss 0\\.\\d+'       # a regular expression that rank 0's log must contain",
        "  exit_code: 0                     # alone it proves little: the verdict then says so",
        "",
        "# All that it writes in this folder or to $VASTRUN_OUTPUTS is downloaded, up to 5 GB (outputs_gb).",
        "# It is kept, and put back on another machine. `vastrun rehearse THIS_FILE resume --write` kills",
        "# the program here, shows whether it then continues, and adds these keys.",
        "# outputs: results/*",
        "# `command: python train.py {resume:--resume}` adds that option and the newest, if there is one.",
        "# checkpoints: checkpoints/*",
        "# retry: {lost: 2, preempted: 2, host: 1}   # continue on another machine when one is lost",
    ]
    if program.imports.uses("wandb"):
        lines += ["", "secrets: WANDB_API_KEY   # taken from your environment; never stored"]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return the text as YAML reads it back as this string."""
    # What could be read as a number, a word of YAML's own or a mapping is quoted.
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9 _./-]*[A-Za-z0-9_./-]", text)
    return text if plain and text.lower() not in ("true", "false", "null") else json.dumps(text)


def _setup_lines(setup: str | None, notes: Sequence[str], *, has_torch: bool) -> Iterator[str]:
    if setup is None:
        return
    yield from (f"# {note}" for note in notes)
    comment = "before the training" + ("; torch is there already" if has_torch and not notes else "")
    yield f"setup: {quoted(setup)}   # {comment}"
    yield ""


def kind_job(kind: type[Program[Any]], name: str) -> str:
    """Return a job file for the first program of a kind."""
    return "\n".join(_head(name)) + "\n" + kind.template


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
    if program.imports.uses("vastrun"):
        return ["  # steps: 1000                   # the step that every rank must report by vastrun.beat"]
    return [
        "  # steps: 1000                   # needs `from vastrun import beat` and beat(step) in the loop,",
        "  #                               # or a callback of vastrun.integrations: then a rank that hangs",
        "  #                               # is named, and progress is shown",
    ]


def _command(program: UserProgram) -> str:
    module = program.path.removesuffix(".py").replace("/", ".")
    if program.imports.is_relative and re.fullmatch(r"\w+(?:\.\w+)+", module):
        return f"python -m {module}"
    return f"python {shlex.quote(program.path)}"
