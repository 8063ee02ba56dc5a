"""The digits that come with scikit-learn: 1,797 scans of 8x8 pixels, 10 classes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits

from raysim.data.arrays import nested


def read_digits(root: Path) -> tuple[pa.Table, None]:
    """Return the digits' one table: `image`, 1x8x8 float32 in [0, 1], and `label`, int64.

    Args:
        root: not needed, for the files are part of scikit-learn.

    Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
    """
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, np.newaxis]
    return pa.table({"image": nested(images), "label": digits.target.astype(np.int64)}), None
