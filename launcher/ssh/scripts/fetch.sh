# Prints parts of files of the box, one request after another; nothing of a file that is not there.
# In: stdin: PATH OFFSET LIMIT, each ended by a NUL. Out: for each request a line, SIZE or why not, and SIZE bytes.
# shellcheck shell=bash
export LC_ALL=C

# The file is opened once, so that one that is replaced meanwhile is not mixed with its successor.
answer() {
  local size
  size=$(($(wc -c </dev/fd/3) - offset))
  ((size > 0)) || size=0
  ((size < limit)) || size=$limit
  echo "$size"
  ((size == 0)) || tail -c "+$((offset + 1))" /dev/fd/3 2>/dev/null | head -c "$size"
}

while IFS= read -rd '' path && IFS= read -rd '' offset && IFS= read -rd '' limit; do
  cd "$VASTRUN_BOX" || exit
  if [[ ! -e $path ]]; then
    echo 0
  elif [[ ! -f $path ]]; then
    echo "is not a file" # a pipe or a device would be read for ever
  else
    { answer; } 3<"$path" || echo "cannot be opened"
  fi
done
