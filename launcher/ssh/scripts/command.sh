# Runs a command of the launcher. One that a signal ends has an exit code nevertheless: 128 and the signal's number.
# In: the command's text. Out: its own.
# shellcheck shell=bash
bash -c "$1"
exit
