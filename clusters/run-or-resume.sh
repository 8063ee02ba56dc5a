#!/usr/bin/env bash
# Run an experiment, or resume it if its folder exists: the command of a job that may start again.
#
#     run-or-resume.sh OUT FILE_OR_RECIPE [OPTION ...]
#
# The options are those of `raysim run`. A resumed run takes its settings from its folder. RAY_ADDRESS names the
# cluster; Ray sets it for its jobs.
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
