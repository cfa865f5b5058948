"""Distributed: ranks, process groups, votes, stop signals and exit of one training."""
