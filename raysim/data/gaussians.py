"""FedBN's synthetic data: two classes of Gaussian points at two clients that differ in covariance."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from algorithms import Purpose, generator
from raysim.data.arrays import nested
from raysim.data.folders import Tables

FEATURES = 10
ROWS = 1000
"""Of a client's training part and of its test part; the text does not say."""

CORRELATION = 0.5
"""Off the diagonal of the second covariance, with changing sign; the text only says that it is not 0."""


def read_gaussians(root: Path, seed: int) -> Tables:
    """Draw both clients' rows.

        x | y ~ N(2y - 1, Sigma),  y = 0, 1;   Sigma_1 = I,   Sigma_2 = (1 - c) I + c s s^T,   s = (1, -1, 1, ...)

    The client `diagonal` has Sigma_1; half of the rows of `combined` have Sigma_2, and half Sigma_1 (caption of Figure
    9). With c = 0.5 the classes are as far apart as the text's accuracy of 100 % asks for. Both classes have as many.

    Args:
        root: not needed, for there are no files.
        seed: keys the draw.

    Returns:
        `x`, float32 [10], `label`, int64, and `domain`, the client's name; for training and for testing.

    FedBN, appendix F. The number of rows and c are chosen here.
    """
    train, test = (
        pa.concat_tables([_client(seed, part, client, name) for client, name in enumerate(("diagonal", "combined"))])
        for part in range(2)
    )
    return train, test


def covariance(correlation: float = CORRELATION) -> npt.NDArray[np.float64]:
    """Sigma_2, [10, 10]."""
    signs = np.where(np.arange(FEATURES) % 2, -1.0, 1.0)
    return (1 - correlation) * np.eye(FEATURES) + correlation * np.outer(signs, signs)


def _client(seed: int, part: int, client: int, name: str) -> pa.Table:
    draw = generator(seed, Purpose.SYNTHETIC, part, client)
    labels = np.arange(ROWS, dtype=np.int64) % 2
    points = draw.standard_normal((ROWS, FEATURES))
    full = np.arange(ROWS) % 4 >= 2 if name == "combined" else np.zeros(ROWS, dtype=bool)
    points[full] = points[full] @ np.linalg.cholesky(covariance()).T
    x = (points + (2 * labels - 1)[:, None]).astype(np.float32)
    return pa.table({"x": nested(x), "label": labels, "domain": pa.array([name] * ROWS, pa.string())})
