"""What a user can put right."""

from __future__ import annotations


class ConfigError(Exception):
    """The job asks for what these ranks, this device or this data set cannot do. One line, for the user."""

    told_elsewhere = False
    """True when another rank explains it."""
