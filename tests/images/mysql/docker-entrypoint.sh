#!/bin/sh
# The part of the official image's entry point that the suites need: MYSQL_ROOT_PASSWORD, MYSQL_DATABASE, MYSQL_USER,
# MYSQL_PASSWORD.
set -eu

if [ "${1:-}" != mysqld ]; then
    exec "$@"
fi
: "${MYSQL_ROOT_PASSWORD:?set MYSQL_ROOT_PASSWORD}"
shift
data=/var/lib/mysql

as_mysql() {
    setpriv --reuid mysql --regid mysql --init-groups "$@"
}

install -d -o mysql -g mysql -m 750 "$data" /var/run/mysqld
if [ ! -d "$data/mysql" ]; then
    as_mysql mysqld --no-defaults --initialize-insecure --datadir="$data"
    {
        echo "CREATE USER 'root'@'%' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';"
        echo "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;"
        echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';"
        if [ -n "${MYSQL_DATABASE:-}" ]; then
            echo "CREATE DATABASE \`$MYSQL_DATABASE\`;"
        fi
        if [ -n "${MYSQL_USER:-}" ]; then
            echo "CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';"
            echo "GRANT ALL PRIVILEGES ON ${MYSQL_DATABASE:+\`$MYSQL_DATABASE\`.}* TO '$MYSQL_USER'@'%';"
        fi
    } >"$data/init.sql"
    chown mysql:mysql "$data/init.sql"
    set -- --init-file="$data/init.sql" "$@"
fi
exec setpriv --reuid mysql --regid mysql --init-groups mysqld --no-defaults --datadir="$data" \
    --socket=/var/run/mysqld/mysqld.sock --secure-file-priv= "$@"
