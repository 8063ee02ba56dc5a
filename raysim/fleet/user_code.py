"""User code for actors that cannot import its modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def pickled_by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Send definitions of these modules to actors with their code in the context, and not by name only."""
    modules = list(dict.fromkeys(modules))
    if not modules:
        yield
        return
    from ray import cloudpickle  # late, because it imports all of Ray

    already = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    added = [module for module in modules if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
