# A container's home with the text that Vast runs at each start, and an image of few programs.

make_home() {
  home=$BATS_TEST_TMPDIR/home
  mkdir -p "$home/bin"
  PYTHONPATH=$repo python3 - "$repo" >"$home/onstart.sh" <<'END'
import pathlib, sys
from launcher.providers.onstart import onstart_text
print(onstart_text((pathlib.Path(sys.argv[1]) / "onstart/lease.sh").read_text()), end="")
END
  box_id=bats-$BATS_TEST_NUMBER-$$-$RANDOM
  # An image of its own: these programs and no others.
  image bash base64 cat chmod chown flock grep gzip ln mkdir mv rm sed sleep ssh-keygen touch
}
end_lease() { bash "$repo/onstart/lease.sh" end "$box_id" "$home/vastrun" 2>/dev/null; }

image() { for tool; do ln -s "$(type -P "$tool")" "$home/bin/"; done; }
lacks() { rm "$home/bin/$1"; }

# onstart SHELL...: as Vast runs it, the environment and all.
onstart() {
  env -i "HOME=$home" "PATH=$home/bin" "CONTAINER_ID=$box_id" VASTRUN_PROVIDER=docker "VASTRUN_SSH_KEY=${key-}" \
    "LEASE_SHIP_S=${LEASE_SHIP_S:-600}" LEASE_LIFE_S=3600 LEASE_LIFE_CAUSE=time_limit LEASE_GRACE_S=60 LEASE_COLLECT_S=600 \
    "$@" "$home/onstart.sh" 3>&-
}
armed() { grep -qs '^state=armed$' "$home/vastrun/lease.state"; }

# use SHELL: sets shell to its path; the test is left out where the computer lacks it, but not in CI.
use() { shell=$(type -P "$1") || { [[ ! ${CI-} ]] && skip "this computer lacks $1"; }; }
