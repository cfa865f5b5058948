"""Stop budget: how long each part waits during a stop. Standard library only.

All values are seconds from the moment at which the stop is asked for. Each part waits longer than those below
it may take to save, so that nothing is killed while it still may save.
"""

LEASE_S = 120.0
"""The lease asks for the stop this long before it ends the machine; at most a fifth of the lease's time."""
ONSTART_S = 100.0
"""When `onstart/step.sh` kills the step, and the supervisor with it. The same number is written there."""
PUSH_S = 95.0
"""When the push of the last checkpoint to its URL is given up."""
CHECKPOINT_S = 80.0
"""Seconds after which the supervisor gives up keeping the last checkpoint of a user's program."""
SUPERVISOR_SAVING_S = 70.0
"""When the supervisor kills the ranks, if one of them is saving a checkpoint."""
SUPERVISOR_S = 45.0
"""When the supervisor kills the onboard trainer's ranks, if none is saving."""
PROGRAM_S = 30.0
"""When the supervisor kills the ranks of a user's own program."""
RANK_SAVING_S = 60.0
"""When a rank of the onboard trainer ends although it is saving a checkpoint."""
RANK_S = 40.0
"""When a rank of the onboard trainer ends in the middle of a step, if not before by `RANK_LEAST_S`."""
RANK_LEAST_S = 8.0
"""A rank ends after this plus twice the time of a usual step, if that is less than `RANK_S`.

One that has not come to the end of its step by then waits for ranks that are gone.
"""
