# Prints a file of the box from a byte on, and what is appended to it, until the caller is gone.
# In: PATH OFFSET; stdin stays open. Out: the bytes. Ends at once where tail cannot follow.
# shellcheck shell=bash
exec 3<&0
# By inotify; where there is none, ten times a second.
tail -c "+$(($2 + 1))" -s 0.1 -f -- "$1" 2>/dev/null &
follower=$!
{ cat >/dev/null; kill "$follower"; } <&3 >/dev/null 2>&1 &
wait "$follower"
