"""A launcher of Hydra that runs the jobs of a multirun as a batch of vastrun."""
