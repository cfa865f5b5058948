"""What the commands do, one file each: drive on, follow, feed the log, pull, reap, and read."""
