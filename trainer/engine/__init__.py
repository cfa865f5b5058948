"""Engine: the training session of a rank, one optimiser step, and the parts of a step."""
