"""ADDRESS: have a worker forked that reads, writes and ends as if it were this process."""

from __future__ import annotations

import signal
import socket
import sys

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker has it too, and ends by itself
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"."], [0, 1, 2])
    connection.recv(1)
