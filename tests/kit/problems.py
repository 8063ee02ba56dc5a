"""Problems (1) and (2) for the tests of their solvers."""

import numpy as np

from partitioning.qp.problem import Problem


def drawn(clients, classes, alpha, *, seed=0, skew=1.0, scale=1):
    """Problem (1) as RADFed draws it; a small `skew` makes the classes uneven."""
    random = np.random.default_rng(seed)
    total = clients * 60
    sizes = random.multinomial(total, random.dirichlet(np.ones(clients))) * scale
    columns = random.multinomial(total, random.dirichlet(np.full(classes, skew))) * scale
    mixes = random.dirichlet(np.full(classes, alpha), size=clients)
    return Problem.of_classes(mixes * sizes[:, None], sizes, columns)


def with_features(clients, seed=0):
    """Problem (2): 3 classes, features of 2 and 4 categories, 20 of the 24 configurations observed."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(range(3), range(2), range(4), indexing="ij"), -1).reshape(-1, 3)
    places = grid[np.sort(random.permutation(24)[:20])] + [0, 3, 5]
    sizes = random.integers(5, 90, clients)
    columns = random.multinomial(sizes.sum(), random.dirichlet(np.ones(20)))
    wanted = np.hstack([random.dirichlet(np.full(d, 0.1), size=clients) for d in (3, 2, 4)])
    return Problem(wanted * sizes[:, None], sizes, columns, places)
