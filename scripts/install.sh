#!/usr/bin/env bash
# Installs what the named groups need and the machine lacks: install.sh [cc] [java] [python] [node] [postgres]
#
# Only Debian's packages, only when a command is missing or too old, and quietly: a machine that has everything
# is left alone and needs neither root nor a network.
set -euo pipefail

say() { printf 'install: %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo -n "$@"
  else
    say "needs root for '$*': run it as root once, then try again"
    return 1
  fi
}

updated=
apt() {
  say "apt-get install $*"
  local log
  log=$(mktemp)
  if [ -z "$updated" ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >"$log" 2>&1 || { cat "$log" >&2; return 1; }
    updated=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >"$log" 2>&1 ||
    { cat "$log" >&2; return 1; }
  rm -f "$log"
}

# The race detector is cgo: it needs a C compiler.
need_cc() { command -v gcc >/dev/null || apt gcc libc6-dev; }

# Kafka 4's tools run on Java 17 or newer.
need_java() {
  local major=0
  if command -v javac >/dev/null; then major=$(javac -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/'); fi
  if [ "$major" -lt 17 ]; then apt openjdk-17-jdk-headless; fi
  command -v mvn >/dev/null || apt maven
}

# venv needs ensurepip, which Debian packages apart.
need_python() {
  if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    apt python3 python3-venv python3-pip
  fi
}

# The TypeScript example runs on Node 18 or newer.
need_node() {
  local major=0
  if command -v node >/dev/null; then major=$(command node --version | sed -E 's/^v([0-9]+).*/\1/'); fi
  if [ "$major" -lt 18 ] || ! command -v npm >/dev/null; then apt nodejs npm; fi
}

# A server's own programs; Debian keeps them off PATH.
need_postgres() {
  local bin
  for bin in $(command -v initdb || true) /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$bin" ]; then return 0; fi
  done
  apt postgresql
}

if [ $# = 0 ]; then
  say 'name what to install: cc, java, python, node, postgres'
  exit 2
fi
for group in "$@"; do
  case "$group" in
    cc | java | python | node | postgres) "need_$group" ;;
    *) say "unknown group '$group': cc, java, python, node, postgres"; exit 2 ;;
  esac
done
