#!/usr/bin/env bash
# The base image of the tests: Debian with Python, this computer's certificates, and what the Dockerfile would fetch.
# In: root, debootstrap, a daemon and a registry (daemon.sh start). Out: 127.0.0.1:5000/vastrun-base:bookworm, pushed.
set -euo pipefail
base=127.0.0.1:5000/vastrun-base:bookworm
packages=ca-certificates,curl,iproute2,openssh-server,python3,tini
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

if ! docker image inspect "$base" >/dev/null 2>&1; then
  root=$(mktemp -d)
  trap 'rm -rf "$root" "$root.log"' EXIT
  debootstrap --variant=minbase --include="$packages" bookworm "$root" >"$root.log" 2>&1 || {
    tail -n 20 "$root.log" >&2
    exit 1
  }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man}
  rm -f "$root"/etc/ssh/ssh_host_*
  [[ ! -e $certificates ]] || cp "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  tar -C "$root" -c . | docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$base" >/dev/null
fi
docker push -q "$base" >/dev/null
