"""Transfer: checkpoints that a box pushes to a URL and fetches from it, and the list of files to download."""
