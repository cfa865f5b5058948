"""Reports: one HTML file about a run or a batch, which needs no network."""
