"""The tables of `vastrun --help`: commands, examples, exit codes. Imports nothing of the launcher."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "init": "Write a job file for your own program or for the onboard trainer.",
    "launch": "Train: rent a machine, upload the job, follow it, download the outputs, destroy the machine.",
    "rehearse": "Run a job's steps one by one on this computer. Costs nothing.",
    "plan": "Show the offers for a job with their expected and maximum costs. Costs nothing.",
    "hold": "Keep a machine, so that further runs start there without booting.",
    "sweep": "Run a job with each combination of some values, under one budget.",
    "batch": "Run a batch file: many points, one budget, a table of results.",
    "status": "List the runs, or show one in detail.",
    "logs": "Print or follow a run's log.",
    "attach": "Follow a run, and drive it if no launcher does.",
    "wait": "Wait until a run ends; the exit code is its verdict.",
    "stop": "Stop a run: save a checkpoint, download the outputs, destroy the machine.",
    "resume": "Continue a run whose launcher was killed or detached.",
    "serve": "Drive runs and batches that have no launcher, on any computer of a team.",
    "why": "Explain why a run ended, with all proofs and what to try next.",
    "report": "Write one HTML page about a run or a batch; it opens without a network.",
    "ui": "Show runs and batches live in the browser; read-only, on this computer only.",
    "replay": "Play back what a launcher did and showed, with its timing.",
    "bugreport": "Write one file for a bug report: transcript, proofs, versions; no secrets.",
    "diff": "Compare two runs: job, image, host, end, metrics.",
    "cost": "Show the cost of runs, or compare it with the bill.",
    "hosts": "List the machines that were rented, and which are avoided because they failed.",
    "ssh": "Open a shell on a run's machine, or run a command there.",
    "ssh-config": "Print a Host block for a run's machine: VS Code, rsync, scp.",
    "forward": "Forward a port from a run's machine, as for TensorBoard or a notebook.",
    "pull": "Download a run's outputs from its machine.",
    "profile": "Record the next steps of a running training, and download the trace.",
    "export": "Write the weights of a run's checkpoint to one file.",
    "reap": "Destroy orphaned machines.",
    "config": "Show or change your settings: monthly and total budgets, the default provider.",
    "image": "Build, push, lock, verify and list the container images.",
    "doctor": "Check this computer, your account and its key; with --rent, the live service.",
    "schema": "Print the JSON Schema of job files, batch files or the --json output of a command.",
    "completion": "Print the completion script for a shell.",
}

SHARED_MODULES: Mapping[str, tuple[str, ...]] = {
    "runs": ("attach", "wait", "stop", "resume"),
    "ssh": ("ssh", "ssh-config", "forward"),
    "report": ("report", "why", "diff"),
    "downloads": ("pull", "profile", "export"),
    "machines": ("reap", "hosts"),
    "serve": ("serve", "ui"),
}
"""Modules that define several commands, as `NAME_command`. Another command is `command` in the
module of its name."""

REPLACES_DRIVERS = frozenset(
    {
        *("launch", "plan", "status", "logs", "attach", "wait", "why", "report", "ui", "diff", "cost"),
        *("hosts", "ssh", "ssh-config", "forward", "pull", "profile", "export"),
    }
)
"""Commands that first replace background drivers that died."""

EXAMPLES = """\b
Examples:
  vastrun launch quickstart.yaml        train, and download the outputs
  vastrun launch job.yaml -d            the same, detached once it trains
  vastrun logs -f last                  follow the newest run's log
  vastrun why last                      why it ended, with the proofs
"""

EXIT_CODES: Mapping[int, str] = {
    0: "success: the run succeeded and its machine is destroyed, or it continues detached",
    1: "error: this computer, the ledger or the provider failed",
    2: "usage error: the command line or the job file is wrong; nothing was done",
    3: "stopped or declined by the user, or pruned by its batch",
    4: "the provider rejected the key",
    5: "the run failed",
    6: "the run hung",
    7: "the machine was preempted or lost",
    8: "no offer fits the job",
    9: "a time or money limit was reached, or a budget has no room for a run",
    10: "unknown: a proof of success is missing, or two contradict each other",
    11: "the destruction of the machine is not confirmed; try again: vastrun resume RUN",
    12: "doctor --rent: the live service deviates from an assumption; the report names each",
    124: "wait --timeout expired",
    130: "interrupted before anything was rented",
}


def place_of(command: str) -> tuple[str, str]:
    """Return the module in this package that defines the command, and its name there."""
    name = command.replace("-", "_")
    for module, commands in SHARED_MODULES.items():
        if command in commands:
            return module, f"{name}_command"
    return name, "command"
