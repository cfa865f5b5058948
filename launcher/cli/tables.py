"""What `vastrun --help` shows: the commands, examples, the exit codes. Imports nothing of the launcher."""

from __future__ import annotations

from collections.abc import Mapping

# The module of a command is vastrun.launcher.cli.<name>; what it holds by the name `command` is the command.
COMMANDS: Mapping[str, str] = {
    "init": "Write a job file for a program of your own, or for the onboard trainer.",
    "launch": "Train: rent a machine, upload the job, follow it, download the outputs, destroy the machine.",
    "rehearse": "Run a job's steps one by one on this computer first. Costs nothing.",
    "plan": "Show the offers for a job and what it may cost. Costs nothing.",
    "hold": "Hold a machine, for runs that then start there without a boot.",
    "sweep": "Run a job at many points: each combination of some values, under one budget.",
    "batch": "Run a batch file: many points, one budget, a table of results.",
    "status": "List the runs, or show one in detail.",
    "logs": "Print or follow a run's log.",
    "attach": "Follow a run, and drive it if no launcher does.",
    "wait": "Wait for a run's end; the exit code is its verdict.",
    "stop": "Stop a run: save a checkpoint, download the outputs, destroy the machine.",
    "resume": "Continue driving a run whose launcher was killed.",
    "serve": "Keep runs and batches going that no launcher drives, on any computer of a team.",
    "why": "Explain why a run ended, with all proofs, and what to try next.",
    "report": "Write one HTML page of a run or a batch, which opens without a network.",
    "ui": "Show runs and batches in the browser, live; only on this computer, only to read.",
    "replay": "Show again what a launcher did and showed, with its timing.",
    "bugreport": "Write one file for a bug report: what was done, the proofs, versions; no secrets.",
    "diff": "Show in what two runs differ: job, image, host, end, metrics.",
    "cost": "Show what runs cost, together or each, and compare that with the bill.",
    "hosts": "List the machines that were rented, and those avoided because they failed.",
    "ssh": "Open a shell on a run's machine, or run a command there.",
    "forward": "Make a port of a run's machine one of this computer: TensorBoard, notebooks.",
    "pull": "Download a run's outputs from its machine.",
    "profile": "Record the next steps of a running training, and download the trace.",
    "export": "Write the weights of a run's checkpoint to one file.",
    "reap": "End machines of ours that no open run claims.",
    "config": "Show or change your settings: budgets of a month and of all runs, the provider.",
    "image": "Build, push, lock, verify and list the container images.",
    "doctor": "Check this computer, the account and its key; with --rent, the live service.",
    "schema": "Print the JSON Schema of job files, of batch files, or of what a command prints with --json.",
    "completion": "Print the completion script of a shell.",
}

REPLACES_DRIVERS = frozenset(
    {
        *("launch", "plan", "status", "logs", "attach", "wait", "why", "report", "ui", "diff", "cost"),
        *("hosts", "ssh", "forward", "pull", "profile", "export"),
    }
)
"""Commands that, before their own work, start another background driver in place of one that died."""

EXAMPLES = """\b
Examples:
  vastrun launch quickstart.yaml        train, and download the outputs
  vastrun launch job.yaml -d            the same, detached once it trains
  vastrun logs -f last                  follow the newest run's log
  vastrun why last                      how it ended, and the proofs
"""

EXIT_CODES: Mapping[int, str] = {
    0: "done: the run succeeded and its machine is destroyed, or it continues detached",
    1: "error: this computer, the ledger or the provider",
    2: "usage: the command line or the job file is wrong; nothing was done",
    3: "stopped or declined by the user, or pruned by its batch",
    4: "the provider does not accept the key",
    5: "the run failed",
    6: "the run hung",
    7: "the machine was taken away or lost",
    8: "no offer fits the job",
    9: "a time or money limit was reached, or a budget has no room for a run",
    10: "unknown: a proof of success is missing, or two contradict each other",
    11: "the destruction of the machine is not confirmed; try again: vastrun resume RUN",
    12: "doctor --rent: the live service is not as assumed; the report names each row",
    124: "wait --timeout ran out",
    130: "interrupted before anything was rented",
}
