"""Web server of `vastrun ui`: pages of runs and batches on loopback, protected by a token."""
