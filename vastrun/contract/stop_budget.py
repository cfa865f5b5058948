"""Stop budget: timeouts of each process during a stop. Standard library only.

All values are seconds from the request to stop. Each process waits longer than the processes below it may
take to save, so that none is killed while it still may save.
"""

LEASE_S = 120.0
"""The lease asks for the stop this long before it ends the machine; at most a fifth of the lease's time."""
ONSTART_S = 100.0
"""Seconds until `onstart/step.sh` kills the step, including the supervisor. That script has the same
number."""
PUSH_S = 95.0
"""Seconds until the push of the last checkpoint to its URL is aborted."""
CHECKPOINT_S = 80.0
"""Seconds until the supervisor stops trying to keep the last checkpoint of a user's program."""
SUPERVISOR_SAVING_S = 70.0
"""Seconds until the supervisor kills the ranks, if one of them is saving a checkpoint."""
SUPERVISOR_S = 45.0
"""Seconds until the supervisor kills the onboard trainer's ranks, if none is saving."""
PROGRAM_S = 30.0
"""Seconds until the supervisor kills the ranks of a user's program."""
RANK_SAVING_S = 60.0
"""Seconds until a rank of the onboard trainer ends although it is saving a checkpoint."""
RANK_S = 40.0
"""Seconds until a rank of the onboard trainer ends in the middle of a step, if not earlier by
`RANK_MIN_S`."""
RANK_MIN_S = 8.0
"""A rank ends after this plus twice the time of a usual step, if that is less than `RANK_S`.

A rank that has not finished its step by then waits for ranks that are gone.
"""
