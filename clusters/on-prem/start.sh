#!/usr/bin/env bash
# Starts Ray on this machine by hand, without `ray up`: once on the head, then on each other machine.
#
#     start.sh head                           # prints the address of the cluster
#     start.sh node HEAD:6379 [OPTION ...]    # with options of `ray start`, such as --labels site=hospital-a
#
# It stays until Ctrl-C, and ends only what it started. All machines need the same ~/.ray/auth_token: draw it on one by
# `ray get-auth-token --generate > /dev/null`, and copy the file to the others.
set -euo pipefail

usage() {
    echo "usage: $0 head [OPTION ...] | node HEAD:PORT [OPTION ...]" >&2
    exit 2
}

# Without a token it does not start: the ports of a cluster are open to the network that the machines are in.
export RAY_AUTH_MODE=token
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
export OMP_NUM_THREADS=1
ulimit -n "$(ulimit -Hn)"

case ${1-} in
    head)
        shift
        # No CPUs: actors are on the other machines. The dashboard is for this machine, and for who comes by ssh.
        exec ray start --head --port=6379 --num-cpus=0 --dashboard-host=127.0.0.1 --disable-usage-stats --block "$@"
        ;;
    node)
        (($# >= 2)) || usage
        address=$2
        shift 2
        exec ray start --address="$address" --disable-usage-stats --block "$@"
        ;;
    *) usage ;;
esac
