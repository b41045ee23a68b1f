#!/bin/sh
# Starts PostgreSQL in a container; on an empty PGDATA it makes the cluster first.
# Understands POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_HOST_AUTH_METHOD,
# POSTGRES_INITDB_ARGS, PGDATA, /docker-entrypoint-initdb.d/*.{sql,sh}, and server
# arguments, in the way the usual PostgreSQL image does.
# Nothing listens on TCP before the cluster is complete, so that `pg_isready -h` and
# clients cannot meet a half-made one.
set -eu

die() {
    echo "docker-entrypoint: $*" >&2
    exit 1
}

# `docker run IMAGE -c max_connections=300` means the server's arguments.
case "${1-}" in
    -*) set -- postgres "$@" ;;
esac
if [ "${1-}" != postgres ]; then
    exec "$@"
fi
for arg in "$@"; do
    case "$arg" in
        '-?' | --help | --describe-config | -V | --version) exec "$@" ;;
    esac
done

: "${PGDATA:=/var/lib/postgresql/data}"
export PGDATA

if [ "$(id -u)" = 0 ]; then
    # A volume or tmpfs mounted here may belong to root; the server demands its own.
    mkdir -p "$PGDATA" /run/postgresql
    chmod 0700 "$PGDATA"
    # Files of an earlier start are right already: only a foreign owner is changed.
    [ "$(stat -c %u "$PGDATA")" = 999 ] || chown -R postgres:postgres "$PGDATA"
    chown postgres:postgres /run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$@"
fi

# To the server SIGTERM means 'wait for every client to leave'; to whoever stops a
# container it means 'now, but cleanly'. An imported image carries no stop signal, so
# this shell stays in front and translates.
serve() {
    "$@" &
    server_pid=$!
    trap 'kill -INT "$server_pid" 2>/dev/null' TERM INT
    trap 'kill -HUP "$server_pid" 2>/dev/null' HUP
    status=0
    wait "$server_pid" || status=$?
    # A signal ends `wait` early; the server's own status comes once it is gone.
    while kill -0 "$server_pid" 2>/dev/null; do
        status=0
        wait "$server_pid" || status=$?
    done
    exit "$status"
}

if [ -s "$PGDATA/PG_VERSION" ]; then
    serve "$@"
fi

# As process 1 a shell ignores signals it has no trap for. Stopped here, the cluster is half
# made: its volume is not to be used again.
trap 'exit 143' TERM INT

user=${POSTGRES_USER:-postgres}
db=${POSTGRES_DB:-$user}
password=${POSTGRES_PASSWORD-}
method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
if [ -n "${POSTGRES_PASSWORD_FILE-}" ]; then
    password=$(cat "$POSTGRES_PASSWORD_FILE")
fi
if [ -z "$password" ] && [ "$method" != trust ]; then
    die "POSTGRES_PASSWORD is empty: give the superuser a password, or set POSTGRES_HOST_AUTH_METHOD=trust for a throw-away database"
fi

mkdir -p "$PGDATA"
password_file=$(mktemp)
printf '%s\n' "$password" >"$password_file"
set_password=
[ -z "$password" ] || set_password="--pwfile=$password_file"
# Synced once at the end instead of file by file.
# shellcheck disable=SC2086 # both are lists of words.
initdb --no-sync --no-instructions --username="$user" --auth-local=trust --auth-host="$method" \
    --encoding=UTF8 --locale=C.UTF-8 $set_password ${POSTGRES_INITDB_ARGS-} >/tmp/initdb.log 2>&1 ||
    { cat /tmp/initdb.log >&2; die "initdb failed"; }
rm -f "$password_file" /tmp/initdb.log
printf 'host all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"

if [ "$db" != postgres ]; then
    # A single-user backend is quicker than a server started for one statement.
    quoted=$(printf '%s' "$db" | sed 's/"/""/g')
    printf 'CREATE DATABASE "%s"\n' "$quoted" |
        postgres --single -j -F postgres >/tmp/createdb.log 2>&1 || true
    if grep -E 'ERROR|FATAL|PANIC' /tmp/createdb.log >&2; then
        die "the database '$db' could not be created"
    fi
    rm -f /tmp/createdb.log
fi

has_scripts=
for script in /docker-entrypoint-initdb.d/*; do
    [ -e "$script" ] && has_scripts=yes
done
if [ -n "$has_scripts" ]; then
    # On the socket alone, with the arguments of the later server.
    server=$1
    shift
    pg_ctl -D "$PGDATA" -w -s -o "-c listen_addresses='' $(printf "'%s' " "$@")" start
    for script in /docker-entrypoint-initdb.d/*; do
        echo "docker-entrypoint: running $script"
        case "$script" in
            *.sql) psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$user" --dbname "$db" -q -f "$script" ;;
            *.sh)
                # shellcheck disable=SC1090 # sourced as the usual image does, so that it may use our variables.
                if [ -x "$script" ]; then "$script"; else . "$script"; fi
                ;;
            *) echo "docker-entrypoint: ignored $script (neither .sql nor .sh)" >&2 ;;
        esac
    done
    pg_ctl -D "$PGDATA" -w -s -m fast stop
    set -- "$server" "$@"
fi
# The cluster was written without syncs; from here on durability is real.
sync -f "$PGDATA"
unset POSTGRES_PASSWORD password
serve "$@"
