"""vastrun's launcher: plan, rent, boot, ship, train, collect, destroy."""

__version__ = "0.1.0"
