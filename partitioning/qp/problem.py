"""The quadratic programmes of the RADFed paper: find the feasible table nearest to the drawn one."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers

if TYPE_CHECKING:
    from scipy import sparse


@dataclass(frozen=True)
class Problem:
    """Problem (1), or problem (2) if samples have categorical features besides their class (RADFed, section IV-A).

        min_{A >= 0} sum_td ((A S')_td - wanted_td)^2   subject to   sum_u A_tu = rows_t,   sum_t A_tu = columns_u

    A row of the table A is a client. A column is a configuration u: a class and a category of each feature. S_du is 1
    if configuration u has category d, else 0. In problem (1) a configuration is a class and S is the identity. The
    paper writes n_t for a share; here it is a number of samples, n_t N.

    Args:
        wanted: wanted samples of each client and category, features side by side [K, D].
        rows: samples per client [K].
        columns: available samples of each configuration [U], with the same total as `rows`.
        places: columns of `wanted` that each configuration counts in, for the class and each feature [U, 1 + M].
    """

    wanted: Floats
    rows: Integers
    columns: Integers
    places: Integers

    @classmethod
    def of_classes(cls, wanted: Floats, rows: Integers, columns: Integers) -> "Problem":
        """Return problem (1), of sizes and classes."""
        return cls(wanted, rows, columns, np.arange(columns.size)[:, None])

    @property
    def has_features(self) -> bool:
        """Whether this is problem (2)."""
        return bool(self.places.shape[1] > 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of clients K and configurations U."""
        return self.rows.size, self.columns.size

    @cached_property
    def incidence(self) -> "sparse.csr_array":
        """Matrix S' of the formula [U, D], sparse."""
        from scipy import sparse

        configurations, features = self.places.shape
        at = (np.repeat(np.arange(configurations), features), self.places.ravel())
        return sparse.csr_array((np.ones(self.places.size), at), shape=(configurations, self.wanted.shape[1]))

    def deviations(self, table: npt.NDArray[np.number]) -> Floats:
        """Return the samples of each category minus the wanted ones [K, D], for a table [K, U]."""
        realised = np.asarray(table @ self.incidence if self.has_features else table, dtype=np.float64)
        return realised - self.wanted

    def loss(self, table: npt.NDArray[np.number]) -> float:
        """Return the objective of a table [K, U]."""
        deviations = self.deviations(table).ravel()
        return float(deviations @ deviations)

    def residual(self, table: Floats) -> float:
        """Return the largest error of a row or column sum, in samples."""
        by_row = np.abs(table.sum(axis=1) - self.rows).max()
        by_column = np.abs(table.sum(axis=0) - self.columns).max()
        return float(max(by_row, by_column))

    def __str__(self) -> str:
        clients, configurations = self.shape
        if self.has_features:
            return f"problem (2) on {clients} clients x {configurations} configurations"
        return f"problem (1) on {clients} clients x {configurations} classes"
