"""vastrun's trainer: neural operators for partial differential equations, trained on any number of ranks."""
