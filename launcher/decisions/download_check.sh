#!/bin/sh
# Downloads for at most 20 s and tells how much and how long: "down BYTES BEGAN ENDED", in seconds of uptime.
# In: $1 the URL, $2 the bytes at most. Any POSIX shell; needs timeout, head, wc and one of curl, wget, python3.
read -r began _ </proc/uptime
bytes=$(
  if command -v curl >/dev/null; then timeout 20 curl -sL -r "0-$2" "$1"
  elif command -v wget >/dev/null; then timeout 20 wget -qO- "$1"
  else timeout 20 python3 -c 'import shutil, sys, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1], None, 15), sys.stdout.buffer)' "$1"
  fi 2>/dev/null | head -c "$2" | wc -c
)
read -r ended _ </proc/uptime
echo "down $((bytes)) $began $ended"
