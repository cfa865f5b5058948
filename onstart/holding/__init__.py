"""Holding: keeps a machine for several runs, with slots, their limits, and the proof that it is clean.

A slot is a box within the box, with a separate lease and log. Standard library only.
"""
