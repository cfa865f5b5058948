# Lists what lies in folders on the shared disk.
# In: folders. Out: for each box, a line of SECONDS NAME RENDEZVOUS, the last one empty where there is none; for each node
#     that was released before its job ended, SECONDS .NAME; at the end, @.
# shellcheck shell=bash disable=SC2154
for folder in "${folders[@]}"; do
  [[ -e $folder ]] || continue
  # A name with a line break would become two rows.
  find "$folder" -mindepth 1 -maxdepth 1 -type d ! -name '.*' ! -name '*[!A-Za-z0-9_.+-]*' -printf '%T@ %f\n' |
    while read -r at name; do
      # A box wrote this file: only a regular file is read, and only characters that stay on the line.
      place=$folder/$name/.rendezvous
      echo "$at $name $([[ -f $place ]] && head -c 300 "$place" 2>&- | LC_ALL=C tr -cd 'A-Za-z0-9._:[]-')"
    done
  [[ ! -e $folder/.over ]] || find "$folder/.over" -type f ! -name '*[!A-Za-z0-9_.+-]*' -printf '%T@ .%f\n'
done
echo @
