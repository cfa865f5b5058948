"""Sampling: the samples of a step, as pure functions of the seed and the step, for any number of ranks."""
