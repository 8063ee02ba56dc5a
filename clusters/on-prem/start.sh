#!/usr/bin/env bash
# Start Ray on this machine by hand, without `ray up`: first on the head, then on each other machine.
#
#     start.sh head                           # prints the address of the cluster
#     start.sh node HEAD:6379 [OPTION ...]    # with options of `ray start`, such as --labels site=hospital-a
#
# It runs until Ctrl-C, and ends only the processes that it started. All machines need the same ~/.ray/auth_token:
# create it on one machine with `ray get-auth-token --generate > /dev/null`, and copy the file to the others.
set -euo pipefail

usage() {
    echo "usage: $0 head [OPTION ...] | node HEAD:PORT [OPTION ...]" >&2
    exit 2
}

# A token is required, because the ports of a cluster are open to the machines' network.
export RAY_AUTH_MODE=token
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
export OMP_NUM_THREADS=1
ulimit -n "$(ulimit -Hn)"

case ${1-} in
    head)
        shift
        # No CPUs, to keep actors on the other machines. Only this machine and users with ssh reach the dashboard.
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
