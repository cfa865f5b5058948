"""The ledger: what was rented, by whom and for how much. Which launchers are alive, and the ids of runs."""
