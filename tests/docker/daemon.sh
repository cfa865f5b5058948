#!/usr/bin/env bash
# A Docker daemon, and a registry on 127.0.0.1:5000, where there are none.
# In: `start` or `stop`; root and apt-get; VASTRUN_DOCKER, the folder of images. Out: both answer; or what `start`
# started is gone, but for the images. Both may be run twice.
set -euo pipefail
images=${VASTRUN_DOCKER:-/var/lib/vastrun-docker}
run=/run/vastrun-docker

start() {
  type curl debootstrap docker-registry dockerd >/dev/null 2>&1 || install
  mkdir -p "$images" "$run"
  daemon_answers || serve dockerd --data-root "$images/data" --exec-root "$run/exec" --pidfile "$run/docker.pid"
  await daemon_answers dockerd
  registry_answers || serve docker-registry serve "$(registry_config)"
  await registry_answers docker-registry
}

stop() {
  local name pid
  for name in docker-registry dockerd; do
    pid=$(cat "$run/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || true
    for _ in {1..300}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    rm -f "$run/$name.pid"
  done
}

install() {
  local packages=(ca-certificates curl debootstrap docker-registry)
  type dockerd >/dev/null 2>&1 || packages+=(docker.io)
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

daemon_answers() { curl -fs --unix-socket /var/run/docker.sock http://docker/_ping >/dev/null; }
registry_answers() { curl -fs http://127.0.0.1:5000/v2/ >/dev/null; }

# Prints the path of its configuration.
registry_config() {
  printf '%s\n' 'version: 0.1' "storage: {filesystem: {rootdirectory: $images/registry}}" \
    'http: {addr: "127.0.0.1:5000"}' >"$run/registry.yml"
  echo "$run/registry.yml"
}

# serve COMMAND...: it runs in a session of its own, and can be stopped.
serve() {
  setsid "$@" </dev/null >"$run/$1.log" 2>&1 &
  echo $! >"$run/$1.pid"
}

# await LOOK COMMAND: until the look holds; else the end of the command's log.
await() {
  for _ in {1..300}; do
    if "$1"; then return; fi
    sleep 0.1
  done
  tail -n 20 "$run/$2.log" >&2
  return 1
}

case ${1-} in
  start | stop) "$1" ;;
  *) echo "usage: daemon.sh start | stop" >&2; exit 2 ;;
esac
