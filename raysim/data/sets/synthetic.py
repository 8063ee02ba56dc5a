"""Data sets drawn from the seed: FedProx's synthetic clients and FedBN's Gaussian points."""

import re
from math import exp
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from algorithms import Purpose, generator
from partitioning.common.bounds import check_memory
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.data.catalogue import SYNTHETIC

SYNTHETIC_FEATURES = 60
SYNTHETIC_CLASSES = 10
MOST_CLIENTS = 1_000_000

LEAST_SIZE, MEAN_SIZE = 50, exp(4 + 2**2 / 2)
"""Rows that every client has in the paper, and the mean of the rows that are drawn."""

ROW_BYTES = 4 * SYNTHETIC_FEATURES + 8 + 8
"""Bytes of a row: its features, label and client."""

OWN_DRAW, COMMON_DRAW = 2, 3
"""Counters of the draws of one client, and of those that all clients share."""

FEATURE_STD = np.arange(1, SYNTHETIC_FEATURES + 1) ** -0.6
"""Standard deviations of the features: the root of Sigma's diagonal j^-1.2."""

GAUSSIAN_FEATURES = 10
GAUSSIAN_ROWS = 1000
"""Rows of a client's training part and of its test part; the paper gives no number."""

GAUSSIAN_CORRELATION = 0.5
"""Entries off the diagonal of the second covariance, with changing sign; the paper only says that they are not 0."""


def read_synthetic(dataset: str, seed: int) -> pa.Table:
    """Draw the rows of every client of FedProx's synthetic data.

        y = argmax(W_k x + b_k),   x ~ N(v_k, Sigma),   Sigma = diag(j^-1.2)
        W_k, b_k ~ N(u_k, 1),  u_k ~ N(0, alpha);   v_k ~ N(B_k, 1),  B_k ~ N(0, beta)

    A larger alpha makes the clients' models differ more, a larger beta their inputs. With "iid" all clients have the
    same W, b ~ N(0, 1), and v = 0.

    Args:
        dataset: "synthetic:ALPHA,BETA,CLIENTS" or "synthetic:iid,CLIENTS"; ",ROWS" at the end sets the mean number of
            rows per client.
        seed: key of the draws; a client's rows do not depend on the number of clients.

    Returns:
        `x`, float32 [60], `label`, int64, and `client`, a number.

    Raises:
        InputError: the name has another form, or the rows would not fit the memory.

    Paper: Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx), section 5.1 and appendix C.1. Its
    sizes are floor(L) + 50, L ~ LogNormal(4, 2).

    Deviations:
        With ROWS the sizes are 1 + floor((ROWS - 1) L / E[L]) instead.
    """
    number = r"\d{1,9}(?:\.\d+)?"
    kind = rf"(?:iid|(?P<alpha>{number}),(?P<beta>{number}))"
    form = re.fullmatch(rf"{SYNTHETIC}{kind},(?P<clients>\d{{1,9}})(?:,(?P<rows>{number}))?", dataset.replace(" ", ""))
    clients, rows = (int(form["clients"]), float(form["rows"] or 1)) if form else (0, 0)
    if form is None or not 1 <= clients <= MOST_CLIENTS or rows < 1:
        raise InputError(
            f"data set {dataset[:80]!r}: must be {SYNTHETIC}ALPHA,BETA,CLIENTS or {SYNTHETIC}iid,CLIENTS, or either "
            f"with ,ROWS at the end, of up to {MOST_CLIENTS:,} clients and at least one row each; write "
            f"{SYNTHETIC}1,1,100"
        )
    variances = None if form["alpha"] is None else (float(form["alpha"]), float(form["beta"]))
    mean_rows = rows if form["rows"] else None
    check_memory(dataset, int(clients * (mean_rows or MEAN_SIZE + LEAST_SIZE) * ROW_BYTES))
    parts = [_synthetic_client(seed, client, variances, mean_rows) for client in range(clients)]
    x, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    owners = np.repeat(np.arange(clients), [len(part[1]) for part in parts])
    return pa.table({"x": nested(x), "label": labels, "client": owners})


def _synthetic_client(
    seed: int, client: int, variances: tuple[float, float] | None, mean_rows: float | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Draw the inputs and labels of a client.

    Args:
        seed: key of the draws.
        client: number of the client.
        variances: alpha and beta; None for "iid".
        mean_rows: mean number of rows; None for the paper's sizes.
    """
    alpha, beta = variances or (0.0, 0.0)
    draw = generator(seed, Purpose.SYNTHETIC, OWN_DRAW, client)
    u, b = draw.normal(0, np.sqrt(alpha)), draw.normal(0, np.sqrt(beta))
    size = draw.lognormal(4, 2)
    n = int(size) + LEAST_SIZE if mean_rows is None else 1 + int((mean_rows - 1) * size / MEAN_SIZE)
    model = generator(seed, Purpose.SYNTHETIC, COMMON_DRAW) if variances is None else draw
    weights = model.normal(u, 1, (SYNTHETIC_FEATURES, SYNTHETIC_CLASSES))
    biases = model.normal(u, 1, SYNTHETIC_CLASSES)
    centre = np.zeros(SYNTHETIC_FEATURES) if variances is None else draw.normal(b, 1, SYNTHETIC_FEATURES)
    x = draw.normal(centre, FEATURE_STD, (n, SYNTHETIC_FEATURES))
    return x.astype(np.float32), (x @ weights + biases).argmax(axis=1)


def read_gaussians(root: Path, seed: int) -> Tables:
    """Draw the rows of FedBN's two clients, whose points differ in covariance.

        x | y ~ N(2y - 1, Sigma),  y = 0, 1;   Sigma_1 = I,   Sigma_2 = (1 - c) I + c s s^T,   s = (1, -1, 1, ...)

    The client `diagonal` has Sigma_1. Half of the rows of `combined` have Sigma_2, and half Sigma_1 (caption of Figure
    9). With c = 0.5 the classes are far enough apart for the paper's accuracy of 100 %. Both classes have the same
    number of rows.

    Args:
        root: unused, because the data set has no files.
        seed: key of the draws.

    Returns:
        `x`, float32 [10], `label`, int64, and `domain`, the client's name, for training and for testing.

    Paper: FedBN, appendix F.

    Deviations:
        The paper gives neither the number of rows nor c.
    """
    train, test = (
        pa.concat_tables(
            [_gaussian_client(seed, part, client, name) for client, name in enumerate(("diagonal", "combined"))]
        )
        for part in range(2)
    )
    return train, test


def covariance(correlation: float = GAUSSIAN_CORRELATION) -> npt.NDArray[np.float64]:
    """Return Sigma_2, [10, 10]."""
    signs = np.where(np.arange(GAUSSIAN_FEATURES) % 2, -1.0, 1.0)
    return (1 - correlation) * np.eye(GAUSSIAN_FEATURES) + correlation * np.outer(signs, signs)


def _gaussian_client(seed: int, part: int, client: int, name: str) -> pa.Table:
    draw = generator(seed, Purpose.SYNTHETIC, part, client)
    labels = np.arange(GAUSSIAN_ROWS, dtype=np.int64) % 2
    points = draw.standard_normal((GAUSSIAN_ROWS, GAUSSIAN_FEATURES))
    full = np.arange(GAUSSIAN_ROWS) % 4 >= 2 if name == "combined" else np.zeros(GAUSSIAN_ROWS, dtype=bool)
    points[full] = points[full] @ np.linalg.cholesky(covariance()).T
    x = (points + (2 * labels - 1)[:, None]).astype(np.float32)
    return pa.table({"x": nested(x), "label": labels, "domain": pa.array([name] * GAUSSIAN_ROWS, pa.string())})
