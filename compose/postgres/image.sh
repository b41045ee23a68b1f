#!/bin/sh
# Makes the image nightsweep/postgres:15-local out of Debian packages, for hosts
# that cannot pull `postgres:17`. Needs apt, dpkg-deb, tar and a Docker Engine;
# needs no root, no registry and no base image. The host's own package database
# is read, never written.
#
#   image.sh            does nothing when the image is there
#   image.sh --force    makes it again
set -eu

image=nightsweep/postgres:15-local
major=15
here=$(cd "$(dirname "$0")" && pwd)

# What the server needs beside itself: a shell, the tools of the entrypoint, and
# the C.UTF-8 locale (libc-bin).
roots="postgresql-$major postgresql-client-$major dash coreutils util-linux sed libc-bin tzdata"

# Dependencies that exist for Debian's own administration (cluster wrappers, debconf,
# perl, account tools) or for JIT compilation. The server never calls the former; the
# latter is 250 MB unpacked, and without its library the server plans without JIT.
unwanted='adduser|debconf|dpkg|libllvm.*|libz3-4|libperl.*|perl.*|libfile-.*|libnumber-.*|libtext-.*|libjson-perl|locales|libc-l10n|netbase|openssl|passwd|postgresql-common|postgresql-client-common|sensible-utils|ssl-cert|sysvinit-utils|tar|ucf|usrmerge|init-system-helpers|util-linux-extra|libsemanage.*|libsepol.*|libdb5.3|libgdbm.*|libpam-modules.*|perl-base'

case "${1-}" in
    --force) ;;
    '')
        if docker image inspect "$image" >/dev/null 2>&1; then
            echo "$image is already here"
            exit 0
        fi
        ;;
    *)
        echo "usage: image.sh [--force]" >&2
        exit 2
        ;;
esac

for tool in apt-get apt-cache dpkg-deb tar docker; do
    command -v "$tool" >/dev/null || {
        echo "image.sh: '$tool' is missing; this image can only be made on Debian 12 or a relative of it" >&2
        exit 3
    }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/nightsweep-postgres.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/debs" "$root"
# An empty package database: the dependencies are then resolved in full, whatever
# the host has installed.
: >"$work/apt/status"

apt_lists=/var/lib/apt/lists
in_sandbox() {
    tool=$1
    shift
    # Run as root, apt would download as the user _apt, who may not enter our folder.
    "$tool" -q -o Dir::State::status="$work/apt/status" -o Dir::State::lists="$apt_lists" \
        -o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User="$(id -un)" \
        -o APT::Install-Recommends=false -o Debug::NoLocking=true "$@"
}

refresh_lists() {
    echo "refreshing the package lists (a private copy)" >&2
    apt_lists=$work/apt/lists
    in_sandbox apt-get update >/dev/null
}

# The closure of $roots without $unwanted, as `name=version` words.
closure() {
    # shellcheck disable=SC2086 # $roots is a list of words.
    in_sandbox apt-get install --simulate $roots |
        sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1=\2/p' |
        grep -Ev "^($unwanted)=" || true
}

fetch() {
    packages=$(closure)
    [ -n "$packages" ] || return 1
    # shellcheck disable=SC2086 # $packages is a list of words.
    (cd "$work/debs" && in_sandbox apt-get download $packages >/dev/null)
}

echo "fetching packages"
if ! fetch 2>"$work/fetch.log"; then
    # The host's lists may be absent or older than what its mirror still serves.
    refresh_lists
    if ! fetch 2>"$work/fetch.log"; then
        cat "$work/fetch.log" >&2
        echo "image.sh: no packages for postgresql-$major from this host's apt sources (they are in Debian 12)" >&2
        exit 3
    fi
fi

echo "unpacking $(find "$work/debs" -name '*.deb' | wc -l) packages"
# Debian 12 has merged /usr; some packages still ship paths of the old layout.
for dir in bin sbin lib lib64; do
    mkdir -p "$root/usr/$dir"
    ln -s "usr/$dir" "$root/$dir"
done
for deb in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" |
        tar -x -C "$root" --keep-directory-symlink --no-same-owner --no-same-permissions \
            --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
            --exclude='./usr/share/info/*' --exclude='./usr/share/locale/*' \
            --exclude='./usr/share/lintian/*' --exclude='./usr/share/bash-completion/*' \
            --exclude='./usr/lib/postgresql/*/lib/bitcode/*' \
            --exclude='./usr/lib/postgresql/*/lib/llvmjit*' \
            --exclude='./usr/lib/systemd/*' --exclude='./lib/systemd/*' \
            --exclude='./etc/init.d/*' --exclude='./etc/cron*' --exclude='./usr/share/gcc/*' \
            --exclude='./usr/lib/*/gconv/*' --exclude='./usr/share/postgresql/*/man/*' \
            --exclude='./usr/share/zoneinfo/right/*' --exclude='./usr/lib/*/perl*'
done

bin=/usr/lib/postgresql/$major/bin
mkdir -p "$root/etc" "$root/tmp" "$root/run/postgresql" "$root/root" "$root/proc" "$root/sys" "$root/dev" \
    "$root/docker-entrypoint-initdb.d" "$root/var/lib/postgresql/data" "$root/usr/local/bin"
ln -sf dash "$root/usr/bin/sh"
# Debian names the socket folder /var/run/postgresql; /var/run is /run.
rm -rf "$root/var/run"
ln -s /run "$root/var/run"
cat >"$root/etc/passwd" <<'END'
root:x:0:0:root:/root:/bin/sh
postgres:x:999:999:PostgreSQL:/var/lib/postgresql:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
END
cat >"$root/etc/group" <<'END'
root:x:0:
postgres:x:999:
nogroup:x:65534:
END
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
# The default of a new cluster: reachable from other containers, as a server image must be.
sample=$root/usr/share/postgresql/$major/postgresql.conf.sample
sed -i "s/^#\?listen_addresses = .*/listen_addresses = '*'/" "$sample"
grep -q "^listen_addresses = '\*'" "$sample"
cp "$here/docker-entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
chmod 0755 "$root/usr/local/bin/docker-entrypoint.sh"
chmod 1777 "$root/tmp"
# Dynamic libraries are found without a cache, but each look-up is then a search.
if command -v /sbin/ldconfig >/dev/null; then
    /sbin/ldconfig -r "$root" 2>/dev/null || true
fi

echo "importing"
previous=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
# Ownership is written into the archive, so that nobody has to own anything here.
tar -C "$root" -cf "$work/root.tar" --sort=name --numeric-owner --owner=0 --group=0 \
    --exclude=./var/lib/postgresql --exclude=./run/postgresql --exclude=./docker-entrypoint-initdb.d .
chmod 0755 "$root/var/lib/postgresql" "$root/docker-entrypoint-initdb.d"
chmod 2775 "$root/run/postgresql"
chmod 0700 "$root/var/lib/postgresql/data"
tar -C "$root" -rf "$work/root.tar" --numeric-owner --owner=999 --group=999 \
    ./var/lib/postgresql ./run/postgresql ./docker-entrypoint-initdb.d

docker import \
    --change "ENV PATH=$bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
    --change "ENV LANG=C.UTF-8" \
    --change "ENV PG_MAJOR=$major" \
    --change "ENV PGDATA=/var/lib/postgresql/data" \
    --change "VOLUME /var/lib/postgresql/data" \
    --change "EXPOSE 5432" \
    --change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
    --change 'CMD ["postgres"]' \
    "$work/root.tar" "$image" >/dev/null

# Every program that is ever called must find its libraries.
for program in postgres initdb pg_ctl psql pg_isready setpriv; do
    docker run --rm --network none --entrypoint "$program" "$image" --version >/dev/null || {
        docker image rm "$image" >/dev/null
        echo "image.sh: $program does not start in the image; the image was removed" >&2
        exit 1
    }
done
# An image replaced by --force would stay behind without a name.
[ -z "$previous" ] || docker image rm "$previous" >/dev/null 2>&1 || true
docker image inspect --format '{{.Size}}' "$image" |
    awk -v image="$image" '{ printf "%s made, %.0f MB\n", image, $1 / 1e6 }'
