"""FedProx's synthetic data: every client has a softmax model and inputs of its own."""

import re
from dataclasses import dataclass
from math import exp

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from algorithms import Purpose, generator
from raysim.common.errors import InputError
from raysim.data.arrays import nested

PREFIX = "synthetic:"
FEATURES = 60
CLASSES = 10
MOST_CLIENTS = 1_000_000
OWN, COMMON = 2, 3
"""The counters of the draws: a client's own, and those that all have in common."""

SPREAD = np.arange(1, FEATURES + 1) ** -0.6
"""The standard deviations of the features, the root of Sigma's diagonal j^-1.2."""

SamplePart = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Synthetic:
    """What a name asks for.

    Args:
        clients: how many.
        rows: their mean number of rows; None for the paper's sizes.
        alpha: variance of the means of the clients' models.
        beta: variance of the means of the clients' inputs.
        iid: whether all clients have one model and one distribution of inputs, of mean 0, instead.
    """

    clients: int
    rows: float | None
    alpha: float = 0
    beta: float = 0
    iid: bool = False

    @classmethod
    def of(cls, dataset: str) -> "Synthetic":
        """Read a name; InputError where it is of no such form."""
        number = r"\d{1,9}(?:\.\d+)?"
        kind = rf"(?:iid|(?P<alpha>{number}),(?P<beta>{number}))"
        form = re.fullmatch(rf"{PREFIX}{kind},(?P<clients>\d{{1,9}})(?:,(?P<rows>{number}))?", dataset.replace(" ", ""))
        clients, rows = (int(form["clients"]), float(form["rows"] or 1)) if form else (0, 0)
        if form is None or not 1 <= clients <= MOST_CLIENTS or rows < 1:
            raise InputError(
                f"data set {dataset[:80]!r}: must be {PREFIX}ALPHA,BETA,CLIENTS or {PREFIX}iid,CLIENTS, or either with "
                f",ROWS at the end, of up to {MOST_CLIENTS:,} clients and at least one row each; write {PREFIX}1,1,100"
            )
        iid = form["alpha"] is None
        return cls(clients, rows if form["rows"] else None, float(form["alpha"] or 0), float(form["beta"] or 0), iid)

    def part(self, seed: int, client: int) -> SamplePart:
        """A client's inputs and labels."""
        draw = generator(seed, Purpose.SYNTHETIC, OWN, client)
        u, b = draw.normal(0, np.sqrt(self.alpha)), draw.normal(0, np.sqrt(self.beta))
        size = draw.lognormal(4, 2)
        n = int(size) + 50 if self.rows is None else 1 + int((self.rows - 1) * size / exp(4 + 2**2 / 2))
        model = generator(seed, Purpose.SYNTHETIC, COMMON) if self.iid else draw
        weights, biases = model.normal(u, 1, (FEATURES, CLASSES)), model.normal(u, 1, CLASSES)
        centre = np.zeros(FEATURES) if self.iid else draw.normal(b, 1, FEATURES)
        x = draw.normal(centre, SPREAD, (n, FEATURES))
        return x.astype(np.float32), (x @ weights + biases).argmax(axis=1)


def read_synthetic(dataset: str, seed: int) -> pa.Table:
    """Draw every client's rows.

        y = argmax(W_k x + b_k),   x ~ N(v_k, Sigma),   Sigma = diag(j^-1.2)
        W_k, b_k ~ N(u_k, 1),  u_k ~ N(0, alpha);   v_k ~ N(B_k, 1),  B_k ~ N(0, beta)

    The larger alpha, the more the clients' models differ, the larger beta, the more their inputs. With "iid" all have
    the same W, b ~ N(0, 1), and v = 0.

    Args:
        dataset: "synthetic:ALPHA,BETA,CLIENTS" or "synthetic:iid,CLIENTS"; with ",ROWS" so many rows in the mean.
        seed: keys the draw; a client's rows do not depend on how many clients there are.

    Returns:
        `x`, float32 [60], `label`, int64, and `client`, a number.

    Raises:
        InputError: the name is of no such form.

    Li et al., Federated Optimization in Heterogeneous Networks (FedProx), section 5.1 and appendix C.1. Deviations: its
    sizes are floor(L) + 50, L ~ LogNormal(4, 2); with ROWS they are 1 + floor((ROWS - 1) L / E[L]) instead.
    """
    asked = Synthetic.of(dataset)
    parts = [asked.part(seed, client) for client in range(asked.clients)]
    x, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    owners = np.repeat(np.arange(asked.clients), [len(part[1]) for part in parts])
    return pa.table({"x": nested(x), "label": labels, "client": owners})
