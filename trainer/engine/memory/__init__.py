"""Memory: how many windows at once every rank has room for, found before the first step or while training."""
