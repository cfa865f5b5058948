# What a workstation does for the launcher: lists its boxes, makes one, starts its lease again, removes it.
# In: FOLDER, then `list`, `rent NAME SLOTS GPUS WANTED LEASE NAME=VALUE...`, `arm NAME` or `destroy NAME LEASE`.
# Out: `box NAME ARMED RENTED_AT GPUS` for each box, `disk FREE_KB`, `refused WHY`, `gpus LIST`, `gone`; at last `@`.
# A box that is there is whole, and has a lease. NAME=VALUE holds no secret.
# shellcheck shell=bash
set -uo pipefail
export LC_ALL=C
umask 077
folder=$1 verb=$2
shift 2
[[ $folder == /* ]] || folder=$HOME/$folder

fail() { echo "$1" >&2; exit 1; }

is_armed() { [[ -f $1/lease.log ]] && ! flock -n "$1/lease.log" true; }

# at, gpus: what `rent` noted of the box $1; what a program has made of that since is bounded here, and read by form later.
read_note() {
  at='' gpus=''
  [[ -f $1/.rented && ! -L $1/.rented ]] || return 0
  read -r at gpus _ < <(head -c 300 "$1/.rented" | tr -cd '0-9, -') || true
}

each_box() { find "$folder" -mindepth 1 -maxdepth 1 -type d ! -name '.*' ! -name '*[!A-Za-z0-9_.-]*' -printf '%f\n'; }

list() {
  local name armed at gpus nearest=$folder
  if [[ -d $folder ]]; then
    while read -r name; do
      armed=0
      ! is_armed "$folder/$name" || armed=1
      read_note "$folder/$name"
      echo "box $name $armed ${at:-0} ${gpus:--}"
    done < <(each_box)
  fi
  until [[ -e $nearest ]]; do nearest=${nearest%/*}; nearest=${nearest:-/}; done
  echo "disk $(df -Pk "$nearest" | awk 'NR == 2 { print $4 }')"
}

# chosen: as many free GPUs as are wanted, or a refusal. Called with the lock.
choose() {
  local slots=$1 total=$2 wanted=$3 name at gpus used=',' taken=0 free=() index
  while read -r name; do
    taken=$((taken + 1))
    read_note "$folder/$name"
    used+=$gpus,
  done < <(each_box)
  ((taken < slots)) || refuse "all $slots slots are taken"
  for ((index = 0; index < total; index++)); do [[ $used == *",$index,"* ]] || free+=("$index"); done
  ((${#free[@]} >= wanted)) || refuse "$wanted GPUs wanted, ${#free[@]} of $total free"
  local IFS=,
  chosen=${free[*]:0:wanted}
}

refuse() { echo "refused $1"; echo @; exit 0; }

rent() {
  local name=$1 slots=$2 total=$3 wanted=$4 lease=$5 chosen='' hidden=$folder/.$1.new
  shift 5
  mkdir -p "$folder" || fail "cannot make $folder"
  { exec 7>>"$folder/.lock" && flock -w 20 7; } || fail "cannot lock $folder"
  rm -rf "$folder"/.*.new # of a launcher whose connection broke, or of a computer that went down
  choose "$slots" "$total" "$wanted"
  { mkdir "$hidden" && printf '%s' "$lease" >"$hidden/lease.sh" && printf '%(%s)T %s\n' -1 "${chosen:--}" >"$hidden/.rented" &&
    printf '%q\n' "$@" "CUDA_VISIBLE_DEVICES=$chosen" CUDA_DEVICE_ORDER=PCI_BUS_ID >"$hidden/.environment" &&
    mv -T "$hidden" "$folder/$name"; } || fail "cannot write $folder: is its disk full?"
  exec 7>&-
  arm "$name"
}

# Starts the lease, unless it is at work, as after a restart of the computer.
arm() {
  local box=$folder/$1 at gpus environment=() word
  [[ -d $box ]] || { echo gone; return; }
  read_note "$box"
  echo "gpus ${gpus:--}"
  is_armed "$box" && return
  [[ -f $box/.environment && -f $box/lease.sh ]] || fail "$1 can only be destroyed"
  while read -r word; do eval "environment+=($word)"; done <"$box/.environment"
  (cd "$box" && exec setsid --wait env "${environment[@]}" VASTRUN_BOX="$box" VASTRUN_INSTANCE="$1" bash lease.sh) \
    </dev/null >/dev/null 2>"$folder/.$1.err" 7>&-
  local code=$?
  # A lease whose time is over ends the box, and who started it.
  [[ -d $box ]] || { rm -f "$folder/.$1.err"; echo gone; return; }
  ((code == 0)) || fail "the lease did not start: $(tail -c 300 "$folder/.$1.err")"
  rm -f "$folder/.$1.err"
}

destroy() {
  env -u VASTRUN_INSTANCE -u VASTRUN_BOX bash -c "$2" lease end "$1" "$folder/$1" >/dev/null 2>&1
  [[ ! -e $folder/$1 ]] || fail "$folder/$1 could not be removed"
  rm -f "$folder/.$1.err"
}

case $verb in
  list) list ;;
  rent) rent "$@"; list ;;
  arm | destroy) "$verb" "$@" ;;
  *) fail "unknown verb $verb" ;;
esac
echo @
