"""The gate: what a box says becomes nouns here, each field with a type and a range, or is refused.

A box is a stranger's computer. Behind the gate nothing is checked again; before it nothing is used.
docs/security.md says who is believed how far.
"""
