#!/bin/sh
# Fetches the secrets of a service and writes them where it finds them: all of them, or none.
# Nothing is replaced unless everything was fetched, so a secret store that is down takes nothing away.
set -eu
umask 077

fail() { printf 'gtm-secrets: %s\n' "$*" >&2; exit 1; }

# fetch NAME KIND SOURCE: what a file holds, or a command prints.
fetch() {
  case "$2" in
    file) value=$(cat -- "$3") || fail "$1: cannot read $3; let the platform's secret store write it, then run this again" ;;
    *) value=$(sh -c "$3") || fail "$1: the command that fetches it failed ($3); run it by hand as root to see why" ;;
  esac
  [ -n "$value" ] || fail "$1: $2 $3 gave nothing"
}

# variable NAME KIND SOURCE: one that the service gets in its environment, from a file that root alone reads.
variable() {
  fetch "$@"
  case "$value" in
    *"'"* | *"
"*) fail "$1: $2 $3 gave several lines or a single quote; it is to give the secret alone (in a URL, ' is %27)" ;;
  esac
  printf "%s='%s'\n" "$1" "$value" >> "$staged"
}

# document PATH KIND SOURCE: a file that the service reads itself.
document() {
  fetch "$@"
  printf '%s\n' "$value" > "$1.new"
  chown gtm: "$1.new"
  documents="$documents $1"
}

staged="$SECRETS.new"
documents=
: > "$staged"
list
for one in $documents "$SECRETS"; do
  if cmp -s "$one.new" "$one"; then rm -f "$one.new"; else mv -f "$one.new" "$one"; fi
done
