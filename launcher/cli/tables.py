"""What `vastrun --help` shows: the commands, examples, the exit codes. Imports nothing of the launcher."""

from __future__ import annotations

from collections.abc import Mapping

# The module of a command is launcher.cli.<name>; what it holds by the name `command` is the command.
COMMANDS: Mapping[str, str] = {
    "launch": "Train: rent a machine, ship the job, follow it, bring the outputs home, end the machine.",
    "rehearse": "Run a job's steps one by one on this computer first. Costs nothing.",
    "plan": "Show the offers for a job and what it may cost. Costs nothing.",
    "status": "List the runs, or show one from near.",
    "logs": "Print or follow a run's log.",
    "attach": "Follow a run, and drive it if nobody does.",
    "wait": "Wait for a run's end; the exit code is its verdict.",
    "stop": "Stop a run: it saves a checkpoint, its outputs come home, its machine ends.",
    "resume": "Go on with a run whose launcher was killed.",
    "why": "Say why a run ended as it did, with all proofs, and what to try next.",
    "cost": "Say what runs cost.",
    "hosts": "List the machines that were rented, and which are avoided since they failed.",
    "pull": "Fetch a run's outputs from its machine again.",
    "export": "Write the weights of a run's checkpoint to one file.",
    "reap": "End machines of ours that no open run claims.",
    "image": "Build, push, lock, verify and list the images that boxes train in.",
    "doctor": "Examine this computer, the account and its key; say what to fix.",
    "completion": "Print the completion script of a shell.",
}

EXAMPLES = """\b
Examples:
  vastrun launch quickstart.yaml        train, and bring the outputs home
  vastrun launch job.yaml -d            the same, detached once it trains
  vastrun logs -f last                  follow the newest run's log
  vastrun why last                      how it ended, and the proofs
"""

EXIT_CODES: Mapping[int, str] = {
    0: "done: the run succeeded and its machine is gone, or it goes on detached as asked",
    1: "error: this computer, the ledger or the provider",
    2: "usage: the command line or the job file is wrong; nothing was done",
    3: "stopped or declined by the user",
    4: "the provider does not accept the key",
    5: "the run failed",
    6: "the run hung",
    7: "the machine was taken away or lost",
    8: "no offer fits the job",
    9: "a time or money limit was reached",
    10: "unknown: a proof of success is missing, or two contradict each other",
    11: "the machine's end is not confirmed; try again: vastrun resume RUN",
    124: "wait --timeout ran out",
    130: "interrupted before anything was rented",
}
