"""Single-threaded linear algebra: the number of threads decides the order of sums, hence the last bits."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run the matrix products of a function in one thread, whatever the environment says."""

    @wraps(function)
    def alone(*arguments: P.args, **options: P.kwargs) -> R:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return function(*arguments, **options)

    return alone
