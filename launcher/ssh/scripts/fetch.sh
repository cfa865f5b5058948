# Prints a part of a file; nothing when there is no such file.
# In: PATH OFFSET LIMIT. Out: at most LIMIT bytes from OFFSET on.
# shellcheck shell=bash
export LC_ALL=C
[[ -e $1 ]] || exit 0
tail -c "+$(($2 + 1))" -- "$1" | head -c "$3"
left=${PIPESTATUS[0]}
((left == 141)) || exit "$left" # 141: head had enough
