"""A run's outputs on this computer: fetched, checked against their checksums, kept in one folder a run."""
