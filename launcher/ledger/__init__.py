"""The ledger: a database of runs, rentals and costs; also which launchers are alive, and the ids of runs."""
