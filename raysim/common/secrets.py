"""Passwords in an experiment's URIs: masked wherever they are written, and read from the environment afterwards."""

import os
from collections.abc import Mapping
from typing import Any

from partitioning.common.uris import MASK, masked_value
from raysim.common.errors import InputError

TRACKING_URI, USER, PASSWORD = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
"""MLflow's own environment variables."""


def without_secrets(tables: Any) -> Any:
    """Return tables of a configuration with all passwords in URIs masked."""
    if isinstance(tables, str):
        return masked_value(tables)
    if isinstance(tables, Mapping):
        return {key: without_secrets(value) for key, value in tables.items()}
    return [without_secrets(each) for each in tables] if isinstance(tables, list | tuple) else tables


def tracking_uri(uri: str) -> str:
    """Return the URI of an MLflow server with its password.

    Args:
        uri: URI, with a mask in the place of the password if it comes from the files of a run.

    Raises:
        InputError: the password is masked, and the environment does not have it.
    """
    if MASK not in uri:
        return uri
    whole = os.environ.get(TRACKING_URI, "")
    if masked_value(whole) == uri:
        return whole
    scheme, _, rest = uri.partition("://")
    user, _, host = rest.rpartition("@")
    if user and MASK not in host and os.environ.get(USER) and os.environ.get(PASSWORD):
        return f"{scheme}://{host}"
    raise InputError(
        f"watch.mlflow_uri = {uri!r}: must have its password, which the files of a run do not store; set "
        f"{TRACKING_URI} to the whole URI, or {USER} and {PASSWORD}"
    )
