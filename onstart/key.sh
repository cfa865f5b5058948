# The instance's own key, for a session that has to end it.
# In: nothing. Out: a function, take_key, which exports CONTAINER_API_KEY, VAST_URL and VASTRUN_SSH_KEY.
# shellcheck shell=bash

# Of a session, sshd has taken away the instance's own key; the container's first process, or one above this, has it.
take_key() {
  local pid=$$ pair stat
  while ((pid > 0)) && [[ -z ${CONTAINER_API_KEY-} ]]; do
    while IFS= read -rd '' pair; do
      case $pair in CONTAINER_API_KEY=* | VAST_URL=* | VASTRUN_SSH_KEY=*) export "${pair?}" ;; esac
    done <"/proc/$pid/environ"
    stat=$(<"/proc/$pid/stat")
    read -r _ pid _ <<<"${stat##*) }"
  done 2>/dev/null
}
