"""Implementation of the commands, one file each: drive, follow, read logs, pull, reap, report."""
