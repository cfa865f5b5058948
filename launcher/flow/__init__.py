"""A run's road: plan, rent, boot, ship, train, collect, destroy. Reaches the world through ports only."""

from launcher.flow.context import Services
from launcher.flow.drive import begin, drive

__all__ = ["Services", "begin", "drive"]
