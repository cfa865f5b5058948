#!/usr/bin/env bash
# The first program of a container, in the place of the image's own, as on Vast: onstart runs beside an SSH server.
# In: SSH_PUBLIC_KEY, the key that is let in; ~/onstart.sh. Ends with 0 once the lease has removed the box, 78 when the
# image can have no SSH server, else as onstart or the server ended; the container ends with it.
set -euo pipefail
key=/etc/ssh/ssh_host_ed25519_key

# What is left without a parent needs somebody to ask how it ended: tini does, where the image has one; else bash itself.
if [[ $$ == 1 ]] && command -v tini >/dev/null; then
  exec tini -- bash "$0"
fi

install_sshd() {
  echo "the image has no SSH server: it is installed"
  timeout 300 apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends openssh-server
}

# An image is known to many, and so are the host keys in it.
make_keys() {
  rm -f /etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f "$key"
  mkdir -p ~/.ssh && chmod 700 ~/.ssh
  printf '%s\n' "$SSH_PUBLIC_KEY" >~/.ssh/authorized_keys
}

# A lease that was killed is started again; it counts on, from here and not from what the box has written down.
keep_box() {
  local box=~/vastrun armed_at
  bash ~/onstart.sh || return
  armed_at=$SECONDS
  while [[ -d $box ]]; do
    if { flock -n 9; } 9<"$box/lease.log"; then LEASE_AGE_S=$((SECONDS - armed_at)) bash ~/onstart.sh || return; fi
    sleep 2
  done 2>/dev/null
  echo "the lease has ended this container"
}

[[ -x /usr/sbin/sshd ]] || install_sshd || exit 78
make_keys
keep_box &
mkdir -p /run/sshd
/usr/sbin/sshd -D -e -f /dev/null -h "$key" -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password \
  -o LogLevel=ERROR &
wait -n
