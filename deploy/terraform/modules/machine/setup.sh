
fail() { printf '%s: %s\n' "$SERVICE" "$*" >&2; exit 1; }
say() { printf '%s: %s\n' "$SERVICE" "$*"; }

# keep FILE: remember it as it is, to be put back if what comes now does not run.
keep() {
  rm -f "$1.before"
  if [ -e "$1" ]; then cp -p "$1" "$1.before"; fi
  kept="$kept $1"
}

# put MODE PATH: a file with what comes on standard input, written whole; one that is so already is left alone.
put() {
  mkdir -p "$(dirname "$2")"
  (umask 077 && cat > "$2.new")
  chmod "$1" "$2.new"
  if cmp -s "$2.new" "$2"; then
    chmod "$1" "$2"
    rm -f "$2.new"
  else
    keep "$2"
    mv -f "$2.new" "$2"
  fi
}

active() { systemctl is-active --quiet "$SERVICE"; }
main_pid() { systemctl show --property MainPID --value "$SERVICE"; }

# switch DIRECTORY: have the service run from it from its next start on.
switch() {
  ln -sfn "$1" "$ROOT/current.new"
  mv -fT "$ROOT/current.new" "$ROOT/current"
}

# Whatever fails while the service runs leaves it, and what it would start with again, as it was.
leave() {
  status=$?
  trap - EXIT
  if [ "$status" -ne 0 ] && [ -n "$running" ]; then
    for one in $kept; do
      if [ -e "$one.before" ]; then mv -f "$one.before" "$one"; else rm -f "$one"; fi
    done
    if [ -n "$previous" ]; then switch "$previous"; fi
    systemctl daemon-reload || true
    say "it goes on as it was" >&2
  fi
  for one in $kept; do rm -f "$one.before"; done
  exit "$status"
}

can_run() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; }

find_python() {
  for python in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
    if can_run "$python"; then return 0; fi
  done
  return 1
}

need_python() {
  if find_python; then return 0; fi
  if [ -z "$INSTALL_PACKAGES" ]; then
    fail "no Python >= 3.11 with venv here (looked for ${PYTHON:-python3 and python3.11 to python3.14}); install one, name it with \`python\`, or set install_packages = true"
  fi
  if command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=300 update && apt-get -qq -y -o DPkg::Lock::Timeout=300 install python3 python3-venv || true
  elif command -v dnf > /dev/null; then
    dnf -q -y install python3.12 || dnf -q -y install python3.11 || true
  fi
  find_python || fail "no Python >= 3.11 with venv, and this system's packages bring none; take Debian 12, Ubuntu 24.04, RHEL 9 or newer, or name one with \`python\`"
}

# Listening addresses that somebody else has are told now, before anything is fetched, with who has them.
need_addresses() {
  if active || [ -z "$LISTENS" ]; then return 0; fi
  # shellcheck disable=SC2086
  taken=$("$python" - $LISTENS << 'END'
import errno, socket, sys
taken = []
for one in sys.argv[1:]:
    kind, _, place = one.partition("/")
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as tried:
        if family == socket.AF_INET6:
            tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == "tcp":
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, int(port)))
            if kind == "tcp":
                tried.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                taken.append(one)
            else:
                sys.exit(f"cannot listen on {one}: {error.strerror}; name addresses that this machine has")
print(*taken)
END
  ) || fail "see above: nothing was changed"
  if [ -z "$taken" ]; then return 0; fi
  holders=$(ss -Hlunpt 2> /dev/null || true)
  for one in $taken; do
    port=${one##*:}
    printf '%s is taken:\n%s\n' "$one" "$(printf '%s\n' "$holders" | grep -F ":$port " || true)" >&2
  done
  case " $taken " in
    *":53 "*) if systemctl is-active --quiet systemd-resolved; then
      fail "port 53 is taken, most likely by systemd-resolved's stub on 127.0.0.53, which keeps others from listening on all addresses: name this machine's own addresses in dns_addresses, or set systemd_resolved = \"make-room\", which turns the stub off (names are then resolved without it)"
    fi ;;
  esac
  fail "stop what has these addresses, or choose others (dns_addresses, dns_port, http_addresses, http_port, addresses, port)"
}

# systemd-resolved without its stub listener; programs then ask the servers that it knows.
make_room() {
  if [ -z "$MAKE_ROOM" ] || ! systemctl is-active --quiet systemd-resolved; then return 0; fi
  conf=/etc/systemd/resolved.conf.d/gtm.conf
  if [ ! -e "$conf" ]; then
    mkdir -p "${conf%/*}"
    printf '# gtm answers on port 53\n[Resolve]\nDNSStubListener=no\n' > "$conf"
    case $(readlink /etc/resolv.conf || true) in
      *stub-resolv.conf) ln -sfn /run/systemd/resolve/resolv.conf /etc/resolv.conf ;;
    esac
    systemctl restart systemd-resolved
  fi
}

# gtm, and what it needs as its own lock has it: whatever the package index gives is held against its hash.
pip_install() {
  printf '%s\n' "$LOCKED" > "$new/gtm.txt"
  pip -r "$new/gtm.txt" || return 1
  lock=$("$new/bin/python" -c 'import os, gtm; print(os.path.join(os.path.dirname(gtm.__file__), "requirements.lock"))') || return 1
  if [ ! -e "$lock" ]; then
    echo "$REQUIREMENT brings no lock of what it needs: take the version of gtm that this module came with, or a later one" >&2
    return 1
  fi
  pip --require-hashes -r "$lock" || return 1
  missing=$("$new/bin/python" -m pip --disable-pip-version-check check) && return 0
  printf '%s\n' "$missing" >&2
  return 1
}

# gtm in an environment of its own, beside the one that runs: a download that fails changes nothing.
install_gtm() {
  new="$ROOT/venvs/$PACKAGE_ID"
  if [ -e "$new/complete" ] && "$new/bin/gtm" --version > /dev/null 2>&1; then return 0; fi
  rm -rf "$new"
  mkdir -p "$ROOT/venvs"
  if ! { "$python" -m venv "$new" && pip_install && "$new/bin/gtm" --version > /dev/null; }; then
    rm -rf "$new"
    fail "could not install $REQUIREMENT (see above); check the package index or URL, and run this again"
  fi
  touch "$new/complete"
  if command -v restorecon > /dev/null; then restorecon -RF "$ROOT" || true; fi
}

# download PATH URL SHA256: a file; the old one stays if the new one does not come, or is not the one that was meant.
download() {
  if [ -n "$3" ] && [ -e "$1" ] && printf '%s  %s\n' "$3" "$1" | sha256sum --check --status; then return 0; fi
  "$new/bin/python" -c 'import shutil, sys, urllib.request as u
with u.urlopen(sys.argv[1], timeout=60) as read, open(sys.argv[2], "wb") as out: shutil.copyfileobj(read, out)' "$2" "$1.new" ||
    fail "could not download $2"
  if [ -n "$3" ] && ! printf '%s  %s\n' "$3" "$1.new" | sha256sum --check --status; then
    rm -f "$1.new"
    fail "what $2 gives is not what sha256 says; correct one of the two"
  fi
  chmod 0644 "$1.new"
  mv -f "$1.new" "$1"
}

# as_service COMMAND...: gtm's command as the service's user, with its settings.
as_service() (
  cd /
  set -a
  # shellcheck disable=SC1090,SC1091
  . "$SETTINGS"
  . "$SECRETS"
  exec runuser -u gtm -- "$new/bin/gtm" "$@"
)

# until_true CHECK...: ask every second, for as long as a start may take.
until_true() {
  deadline=$(($(date +%s) + START_TIMEOUT))
  until "$@"; do
    if [ "$(date +%s)" -ge "$deadline" ]; then return 1; fi
    sleep 1
  done
}

changed_pid() { active && [ "$(main_pid)" != "$before" ]; }

go_on_with() {
  before=$(main_pid)
  case "$1" in
    reload)
      systemctl reload "$SERVICE" || fail "the reload failed: journalctl -u $SERVICE says why"
      until_true changed_pid || fail "the new version did not take over within $START_TIMEOUT s: journalctl -u $SERVICE says why" ;;
    restart)
      systemctl restart --no-block "$SERVICE"
      until_true changed_pid || fail "not running again within $START_TIMEOUT s: journalctl -u $SERVICE says why" ;;
    start)
      systemctl start --no-block "$SERVICE"
      until_true active || fail "set up, but not ready within $START_TIMEOUT s; it goes on trying: journalctl -u $SERVICE says what it waits for" ;;
  esac
}

main() {
  [ "$(id -u)" -eq 0 ] || fail "needs root: run it with sudo"
  command -v systemctl > /dev/null || fail "needs systemd"
  exec 9> "/run/$SERVICE-setup.lock"
  flock -n 9 || fail "another set-up of it runs on this machine; wait for its end"
  running= previous= kept=
  if active; then running=yes; fi
  if [ -e "$ROOT/current" ]; then previous=$(readlink -f "$ROOT/current"); fi
  getent passwd gtm > /dev/null ||
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin gtm
  make_room
  need_python
  need_addresses
  install_gtm
  trap leave EXIT
  trap 'exit 130' HUP INT TERM
  files
  given
  keep "$SECRETS"
  "$FETCH"
  downloads
  if [ -z "$running" ]; then prepare; fi
  unit_sum=$(sha256sum < "/etc/systemd/system/$SERVICE.service")
  # shellcheck disable=SC2086
  all_sum=$({ cat "$SECRETS" $READS && echo "$PACKAGE_ID"; } | sha256sum)
  switch "$new"
  systemctl daemon-reload
  systemctl enable --quiet "$SERVICE"
  old_unit= old_all=
  if [ -e "$ROOT/applied" ]; then { read -r old_unit && read -r old_all; } < "$ROOT/applied" || true; fi
  if [ -z "$running" ]; then
    go_on_with start
    done="started"
  elif [ "$unit_sum" != "$old_unit" ]; then
    go_on_with restart
    done="restarted with the new unit"
  elif [ "$all_sum" != "$old_all" ]; then
    go_on_with "$ON_CHANGE"
    done="runs with what is new"
  else
    done="nothing to change"
  fi
  printf '%s\n%s\n' "$unit_sum" "$all_sum" | put 0644 "$ROOT/applied"
  for one in "$ROOT"/venvs/*; do
    if [ "$one" != "$new" ] && [ "$one" != "$previous" ]; then rm -rf "$one"; fi
  done
  say "$done"
  trap - EXIT
  for one in $kept; do rm -f "$one.before"; done
  finish
}

main
