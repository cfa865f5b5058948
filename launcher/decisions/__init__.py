"""Decisions about money, time, machines and evidence. Pure functions that get the time as an argument."""
