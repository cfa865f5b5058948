# Ends a command and all that it started.
# In: PID of the command, which leads a process group. Out: nothing.
# shellcheck shell=bash
kill -KILL -- "-$1"
