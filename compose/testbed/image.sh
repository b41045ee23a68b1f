#!/bin/sh
# Builds the static binary and the image nightsweep/testbed:local around it.
# Quick when nothing changed. Needs cargo and a Docker Engine; no registry, no buildx.
set -eu

image=nightsweep/testbed:local
here=$(cd "$(dirname "$0")" && pwd)

# The flag reaches the last link only, so every dependency is shared with the other builds
# of the workspace. The path of the binary is asked for, since CARGO_TARGET_DIR may move it.
cd "$here"
binary=$(cargo rustc --release --locked --package testbed --bin testbed \
    --message-format=json-render-diagnostics \
    -- -C target-feature=+crt-static -C strip=debuginfo |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

context=$(mktemp -d "${TMPDIR:-/tmp}/nightsweep-testbed.XXXXXX")
trap 'rm -rf "$context"' EXIT
cp "$here/Dockerfile" "$binary" "$context/"

previous=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
# The classic builder is in every engine; buildx is not.
DOCKER_BUILDKIT=0 docker build --quiet --tag "$image" "$context" >"$context/log" 2>&1 || {
    cat "$context/log" >&2
    exit 1
}
current=$(docker image inspect --format '{{.Id}}' "$image")
if [ "$current" = "$previous" ]; then
    echo "$image is up to date"
    exit 0
fi
# The image it replaces would stay behind without a name.
[ -z "$previous" ] || docker image rm "$previous" >/dev/null 2>&1 || true

# A binary that is not static would not start here. Nobody listens, so the answer is 1.
status=0
docker run --rm --network none "$image" healthcheck >/dev/null 2>&1 || status=$?
if [ "$status" != 1 ]; then
    docker image rm "$image" >/dev/null
    echo "image.sh: the binary does not start in an empty image (status $status); the image was removed" >&2
    exit 1
fi
docker image inspect --format '{{.Size}}' "$image" |
    awk -v image="$image" '{ printf "%s made, %.1f MB\n", image, $1 / 1e6 }'
