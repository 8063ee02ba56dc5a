#!/usr/bin/env bash
# One environment a peer, because their requirements need not agree: bash environments.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/../../../.peers}

command -v uv >/dev/null || { echo "environments.sh needs uv: pip install uv" >&2; exit 1; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Away from this repository: the versions that its pyproject.toml pins are not the peers'.
cd /
for peer in flower pfl fedjax fluke blazefl; do
    # pfl runs on Python 3.10 to 3.12, BlazeFL 3 from 3.14 on; its threads need the build without a lock.
    version=3.11
    [ "$peer" = blazefl ] && version=3.14t
    uv venv --quiet --clear --python "$version" "$folder/$peer"
    uv pip install --quiet --python "$folder/$peer/bin/python" -r "$here/requirements-$peer.txt"
done
