#!/bin/sh
# Builds stand-in images where no registry is reachable: local/postgres:18 and local/mysql:9.7.
#
# The base image is made with debootstrap from the Debian mirror that this host's apt is set up with, and the servers
# come from newer suites of the same mirror. Needs root, debootstrap, a running Docker daemon, and a Debian host.
#
#   tests/images/build.sh [postgres] [mysql]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=${SUITE:-unstable}

fail() {
    echo "build.sh: $1" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "debootstrap needs root"
command -v debootstrap >/dev/null || fail "install debootstrap first (apt-get install debootstrap)"
docker version >/dev/null 2>&1 || fail "no Docker daemon answers; start it first"

# The mirror of the host's own suite, as apt itself sees it. The first source that carries it is the main archive.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
    awk -v suite="$codename" '$2 == suite && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || fail "apt has no source for $codename main; run apt-get update"

base=pg-pipeline-base:$suite
if ! docker image inspect "$base" >/dev/null 2>&1; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # debootstrap of an older Debian knows every newer suite by the script of "sid".
    debootstrap --variant=minbase "$suite" "$work/root" "$mirror" /usr/share/debootstrap/scripts/sid
    rm -rf "$work"/root/var/cache/apt/archives/*.deb
    tar -C "$work/root" -c . | docker import - "$base" >/dev/null
fi

build() {
    docker build --network host --build-arg BASE="$base" -t "$1" "$here/$2"
    docker image inspect --format "$1: {{.Size}} bytes" "$1"
}

[ $# -gt 0 ] || set -- postgres mysql
for server in "$@"; do
    case $server in
        postgres) build local/postgres:18 postgres ;;
        mysql) build local/mysql:9.7 mysql ;;
        *) fail "no image called $server; name postgres or mysql" ;;
    esac
done
