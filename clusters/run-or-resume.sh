#!/usr/bin/env bash
# Run an experiment, or resume it if its folder or URI holds a run: the command of a job that may start again.
#
#     run-or-resume.sh OUT FILE_OR_RECIPE [OPTION ...]
#
# The options are those of `raysim run`. Give each experiment an OUT of its own: a resumed run takes its settings from
# there, and not from the file. RAY_ADDRESS names the cluster; Ray sets it for its jobs.
set -euo pipefail

if (($# < 2)); then
    echo "usage: $0 OUT FILE_OR_RECIPE [OPTION ...]" >&2
    exit 2
fi
out=$1
experiment=$2
shift 2

holds_run() {
    if [[ $out == *://* ]]; then
        # If the URI cannot be reached, `raysim run` says so.
        python -c 'import sys; from partitioning.store.remote import RemoteFolder as Folder
sys.exit("config.toml" not in Folder.of(sys.argv[1]).files())' "$out" 2> /dev/null
    else
        [[ -f "$out/config.toml" ]]
    fi
}

if holds_run; then
    echo "$out holds a run: it is resumed with its own settings, and not with those of $experiment" >&2
    exec python -m raysim resume "$out"
fi
exec python -m raysim run "$experiment" --out "$out" "$@"
