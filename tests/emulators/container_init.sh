#!/bin/sh
# The first program of a container, in the place of the image's own, as on Vast: host keys, the onstart text, sshd.
# In: /root/onstart.sh and /root/.ssh/authorized_keys, put there before each start; stdin, whose end means "stop".
cd /root || exit 1
mkdir -p /run/sshd /workspace
if ! [ -x /usr/sbin/sshd ]; then
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-server; } >/dev/null
fi
key=/etc/ssh/ssh_host_ed25519_key
if ! [ -e hasbooted ]; then
  rm -f /etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f "$key"
  touch hasbooted
fi
/usr/sbin/sshd -D -e -f /dev/null -h "$key" -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no \
  -o MaxSessions=100 -o MaxStartups=100 -o UseDNS=no -o LogLevel=ERROR -o Subsystem='sftp internal-sftp' &
[ ! -s onstart.sh ] || ./onstart.sh &
# As long as the emulator lives.
cat >/dev/null
