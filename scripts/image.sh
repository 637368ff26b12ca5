#!/usr/bin/env bash
# Builds the container image `emmclab` from the wheel in build/wheels, with the first of podman, docker and buildah that works here.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '%s\n' "$*" >&2; }

compgen -G 'build/wheels/*.whl' >/dev/null || { say 'error: there is no wheel in build/wheels'; say 'hint: run `make wheel`'; exit 2; }
for builder in podman docker buildah; do
    # A client whose service does not run cannot build.
    if command -v "$builder" >/dev/null && "$builder" info >/dev/null 2>&1; then
        exec "$builder" build --file Containerfile --tag emmclab .
    fi
done
say 'error: neither podman nor docker nor buildah works here'
say 'hint: install podman, or start the service of docker; `pip install build/wheels/*.whl` needs none of them'
exit 2
