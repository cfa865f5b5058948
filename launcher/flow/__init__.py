"""A run's road: plan, rent, boot, ship, train, collect, destroy. Reaches the world through ports only."""

from launcher.flow.drive import begin, drive
from launcher.flow.trip import Tools

__all__ = ["Tools", "begin", "drive"]
