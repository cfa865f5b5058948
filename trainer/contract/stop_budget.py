"""How long a stop may take: whoever asks for it waits longer than those who save. Standard library only.

All in seconds from the moment at which it is asked for.
"""

LEASE_S = 120.0
"""The lease asks so long before it ends the machine; of a short lease it is a fifth."""
ONSTART_S = 100.0
"""`onstart/step.sh` then kills the step, and the supervisor with it."""
PUSH_S = 95.0
"""By then the last checkpoint has left for its URL, or has had its time."""
SUPERVISOR_SAVING_S = 70.0
"""The supervisor then kills ranks of which one saves a checkpoint,"""
SUPERVISOR_S = 45.0
"""those of the onboard trainer that do not,"""
PROGRAM_S = 30.0
"""and those of a program of the user's own."""
RANK_SAVING_S = 60.0
"""A rank of the onboard trainer then leaves in the midst of a checkpoint,"""
RANK_S = 40.0
"""or in the midst of a step,"""
RANK_LEAST_S = 8.0
"""or after this and twice the time of a usual step, if that is less: it waits for ranks that are gone."""
