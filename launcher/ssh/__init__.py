"""SSH: a shell on a rented machine. `remote.SshRemote` is the port. The user's own SSH set-up is not used."""
