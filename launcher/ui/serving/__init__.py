"""`vastrun ui`: the pages of runs and batches on this computer's own address, for whoever has the token."""
