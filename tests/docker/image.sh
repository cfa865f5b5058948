#!/usr/bin/env bash
# The image of this checkout for computers without GPUs: built on the base image, pushed and locked; what it has is shown.
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
docker run --rm --network none "$image" python3 -m vastrun.onstart.boot.image_contents >&2
echo "$image"
