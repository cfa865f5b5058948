"""A machine that is held for several runs: its slots, their limits, and the proof that it is clean.

A slot is a box within the box, with a lease, a log and an end of its own. Standard library only.
"""
