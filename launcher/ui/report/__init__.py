"""Reports: one HTML file of a run or a batch, which opens from the disk and asks no network."""
