"""A Ray of several nodes on this machine."""

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.cluster_utils import Cluster

NOTICED = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""Ray's own settings would notice a dead node after some 15 seconds."""


@contextmanager
def sockets_collected() -> Iterator[None]:
    """Collect the sockets that Ray leaves open in the context, where a node is slow to start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@contextmanager
def nodes(*each: Mapping[str, Any], connected: bool = True, noticed: bool = False) -> Iterator[Cluster]:
    """Within, a head without CPUs runs, and these nodes.

    Args:
        each: what each node has, as `ray.init` takes it.
        connected: whether this process is a driver of it.
        noticed: whether a node that dies is noticed soon.
    """
    head = {"num_cpus": 0, "include_dashboard": False, **({"_system_config": NOTICED} if noticed else {})}
    with sockets_collected():
        cluster = Cluster(True, head_node_args=head)
        for node in each:
            cluster.add_node(**node)
        if connected:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster
    finally:
        if connected:
            ray.shutdown()
        cluster.shutdown()
