"""Which samples a step trains on: pure functions of the seed and the step, whatever the number of ranks."""
