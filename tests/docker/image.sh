#!/usr/bin/env bash
# The image of this checkout for computers without GPUs: built on the base image, pushed, locked and verified.
# In: .venv, a daemon, a registry and the base image (daemon.sh start, base.sh). Out: the image's name, on stdout.
set -euo pipefail
cd "$(dirname "$0")/../.."
registry=127.0.0.1:5000
lock=$(mktemp)
trap 'rm -f "$lock"' EXIT
export VASTRUN_IMAGE_LOCK=$lock
cp configs/image.lock "$lock"

image=$(.venv/bin/vastrun image publish --variant cpu --base "$registry/vastrun-base:bookworm" --repository "$registry/vastrun")
image=${image%@*}
.venv/bin/vastrun image verify cpu >&2
echo "$image"
