"""Memory: finds the micro-batch that fits on every rank, before the first step or while training."""
