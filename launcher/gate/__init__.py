"""The gate: values from a machine become typed values with a range, or are rejected.

A box runs on a stranger's computer. Values behind the gate are not checked again; values before it are not
used. docs/security.md says how far each source is trusted.
"""
