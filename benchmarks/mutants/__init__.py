"""Mutation testing: a random sample of small faults in the code, and which of them the tests notice.

Ours, since mutmut mutates nothing outside of functions (tables, defaults of fields) and first runs all tests
once within one process, and cosmic-ray runs one test command for all mutants, in the tree itself; neither
draws a sample.
"""
