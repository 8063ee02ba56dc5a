"""The quadratic programmes of the RADFed paper: which table of samples is nearest to the one that was drawn."""

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
    """Problem (1), or problem (2) where a sample has categorical features besides its class.

    min_{A >= 0} sum_td ((A S')_td - wanted_td)^2   subject to   sum_u A_tu = rows_t,   sum_t A_tu = columns_u

    A row of the table A is a client, a column a configuration u: a class and a category of each feature. S counts:
    S_du = 1 where configuration u has category d. In problem (1) a configuration is a class, and S is the identity.

    Args:
        wanted: samples that each client should have of each category, those of all features side by side [K, D].
        rows: samples a client [K].
        columns: samples that there are of each configuration [U]; the same total as `rows`.
        places: which columns of `wanted` each configuration counts in, for the class and each feature [U, 1 + M].

    RADFed, section IV-A. The paper writes n_t for a share where we have whole samples, n_t N.
    """

    wanted: Floats
    rows: Integers
    columns: Integers
    places: Integers

    @classmethod
    def of_classes(cls, wanted: Floats, rows: Integers, columns: Integers) -> "Problem":
        """Problem (1): sizes and classes."""
        return cls(wanted, rows, columns, np.arange(columns.size)[:, None])

    @property
    def has_features(self) -> bool:
        """Whether this is problem (2)."""
        return bool(self.places.shape[1] > 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Clients K and configurations U."""
        return self.rows.size, self.columns.size

    @cached_property
    def incidence(self) -> "sparse.csr_array":
        """S' of the formula [U, D], sparse."""
        from scipy import sparse

        configurations, features = self.places.shape
        at = (np.repeat(np.arange(configurations), features), self.places.ravel())
        return sparse.csr_array((np.ones(self.places.size), at), shape=(configurations, self.wanted.shape[1]))

    def deviations(self, table: npt.NDArray[np.number]) -> Floats:
        """Samples of each category above those wanted [K, D], of a table [K, U]."""
        realised = np.asarray(table @ self.incidence if self.has_features else table, dtype=np.float64)
        return realised - self.wanted

    def loss(self, table: npt.NDArray[np.number]) -> float:
        """What is minimised."""
        deviations = self.deviations(table).ravel()
        return float(deviations @ deviations)

    def residual(self, table: Floats) -> float:
        """The largest deviation of a row's or column's sum, in samples."""
        by_row = np.abs(table.sum(axis=1) - self.rows).max()
        by_column = np.abs(table.sum(axis=0) - self.columns).max()
        return float(max(by_row, by_column))

    def __str__(self) -> str:
        clients, configurations = self.shape
        if self.has_features:
            return f"problem (2) on {clients} clients x {configurations} configurations"
        return f"problem (1) on {clients} clients x {configurations} classes"
