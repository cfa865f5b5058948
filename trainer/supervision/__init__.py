"""The parts of the supervisor: start the ranks, watch them, end them, tell what happened."""
