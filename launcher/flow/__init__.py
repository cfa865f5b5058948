"""A run's road: plan, rent, boot, ship, train, collect, destroy. Reaches the world through ports only."""
