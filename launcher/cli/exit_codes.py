"""The exit codes, for `vastrun --help`."""

from __future__ import annotations

from collections.abc import Mapping

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
    11: "the machine's end is not confirmed; see: vastrun reap",
    124: "wait --timeout ran out",
    130: "interrupted before anything was rented",
}
