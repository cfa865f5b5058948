"""The phases of a run: plan, rent, boot, ship, train, collect, destroy. Uses ports only."""
