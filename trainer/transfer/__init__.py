"""What goes to and from a box: checkpoints pushed to a URL and fetched from it, and the list of outputs."""
