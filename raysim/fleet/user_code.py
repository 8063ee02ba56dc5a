"""Sending a user's own code: actors need not be able to import it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

from ray import cloudpickle


@contextmanager
def sent_whole(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Within, what these modules define goes to actors with its code, and not by its name alone."""
    already = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    added = [module for module in dict.fromkeys(modules) if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
