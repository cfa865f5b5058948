"""What `nvidia-smi` is on an emulated box: a script that shows the GPUs which the box was promised."""

import shlex

from tests.emulators.box import Graphics

_NVIDIA_SMI = """\
#!/bin/bash
# What nvidia-smi says of the GPUs that this box was promised.
names=({names})
unit=' MiB'
[[ $* != *nounits* ]] || unit=
answer() {{
  local index=$1 field line=()
  IFS=, read -ra fields <<<"$2"
  for field in "${{fields[@]}}"; do
    case $field in
      index) line+=("$index") ;;
      name | gpu_name) line+=("${{names[index]}}") ;;
      uuid | gpu_uuid) line+=("GPU-00000000-0000-0000-0000-00000000000$index") ;;
      memory.total) line+=("{memory_mb}$unit") ;;
      memory.used) line+=("{used_mb}$unit") ;;
      driver_version) line+=("{driver}") ;;
      *) line+=("[N/A]") ;;
    esac
  done
  local joined
  printf -v joined '%s, ' "${{line[@]}}"
  echo "${{joined%, }}"
}}
(($#)) || echo '| NVIDIA-SMI {driver}    Driver Version: {driver}    CUDA Version: {cuda} |'
for argument; do
  case $argument in
    -L) for i in "${{!names[@]}}"; do
      echo "GPU $i: ${{names[i]}} (UUID: GPU-00000000-0000-0000-0000-00000000000$i)"
    done ;;
    --query-gpu=*) for i in "${{!names[@]}}"; do answer "$i" "${{argument#*=}}"; done ;;
  esac
done
"""


def nvidia_smi(graphics: Graphics) -> str:
    """The script."""
    return _NVIDIA_SMI.format(
        names=" ".join(map(shlex.quote, graphics.names)),
        memory_mb=graphics.memory_mb,
        used_mb=graphics.used_mb,
        driver=graphics.driver,
        cuda=f"{graphics.cuda:.1f}" if graphics.cuda else "N/A",
    )
