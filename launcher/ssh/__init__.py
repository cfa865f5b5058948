"""SSH: a shell on a rented machine. `remote.SshRemote` is the port. It ignores the user's SSH settings."""
