"""The parts of the supervisor: start the ranks, watch them, end them, record what happened."""
