#!/usr/bin/env bash
# Runs an experiment, or goes on with it where its folder is there: what a job does that may be started again.
#
#     run-or-resume.sh OUT FILE_OR_RECIPE [OPTION ...]
#
# The options are those of `raysim run`. A run that goes on has what it was begun with in its folder. The cluster is that
# of RAY_ADDRESS, which jobs of Ray have.
set -euo pipefail

if (($# < 2)); then
    echo "usage: $0 OUT FILE_OR_RECIPE [OPTION ...]" >&2
    exit 2
fi
out=$1
experiment=$2
shift 2

if [[ -f "$out/config.toml" ]]; then
    exec python -m raysim resume "$out"
fi
exec python -m raysim run "$experiment" --out "$out" "$@"
