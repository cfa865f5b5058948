"""vastrun's trainer: everything that runs on the box, from the supervisor to the training loop."""
