#!/bin/sh
# The part of the official image's entry point that the suites need: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB.
set -eu

if [ "${1:-}" != postgres ]; then
    exec "$@"
fi
: "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD}"
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

as_postgres() {
    setpriv --reuid postgres --regid postgres --init-groups "$@"
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -d -o postgres -g postgres -m 700 "$PGDATA"
    password=$(as_postgres mktemp)
    printf '%s' "$POSTGRES_PASSWORD" >"$password"
    as_postgres initdb -D "$PGDATA" -U "$user" --pwfile "$password" --auth=scram-sha-256 --no-sync --no-instructions
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\"" | as_postgres postgres --single -D "$PGDATA" postgres >/dev/null
    fi
fi
mkdir -p /var/run/postgresql && chown postgres:postgres /var/run/postgresql
exec setpriv --reuid postgres --regid postgres --init-groups "$@" -D "$PGDATA"
