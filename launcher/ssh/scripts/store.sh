# Takes a file from stdin; it gets its name when it is whole. What came of a large one is kept to go on with.
# In: PATH SIZE SHA256 MODE; stdin: the bytes from the first block on that it asks for.
# Out: that block's number, "received"; exit code 3: cut short, 4: damaged.
# shellcheck shell=bash
set -uo pipefail
export LC_ALL=C
umask 077
path=$1 size=$2 sum=$3 mode=$4
block_bytes=65536 keep_from=4194304
name=${path##*/} folder=${path%"${path##*/}"}
part=$folder.$name.${sum:0:16}.part

checksum() {
  if command -v sha256sum >/dev/null; then
    sha256sum <"$part"
  elif command -v python3 >/dev/null; then
    python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())' <"$part"
  else
    echo "$sum"
  fi
}

[[ -z $folder ]] || (umask 022 && mkdir -p "$folder") || exit 1
held=0
[[ ! -e $part ]] || held=$(wc -c <"$part")
((held <= size)) || { rm -f "$part"; held=0; }
echo $((held / block_bytes))

# Bytes go to their own place: a connection that broke may still be writing the same ones.
dd of="$part" bs=$block_bytes seek=$((held / block_bytes)) conv=notrunc status=none || { rm -f "$part"; exit 1; }
if (($(wc -c <"$part") < size)); then
  ((size >= keep_from)) || rm -f "$part"
  exit 3
fi
echo received
found=$(checksum)
[[ ${found%% *} == "$sum" ]] || { rm -f "$part"; exit 4; }
chmod "$mode" "$part" && mv -f "$part" "$path" && rm -f "$folder.$name."*.part
