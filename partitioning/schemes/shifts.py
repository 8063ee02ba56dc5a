"""Schemes that deal evenly and then change the samples: their features or their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers, encode, positive, read_seed
from partitioning.common.errors import InputError
from partitioning.common.streams import Purpose, generator
from partitioning.schemes.even import iid
from partitioning.schemes.parts import Change, Parts

if TYPE_CHECKING:
    import pyarrow as pa


def feature_noise(labels: npt.ArrayLike, *, clients: int, strength: float = 0.5, seed: int = 0) -> Parts:
    """Deal evenly, and add noise to the features that grows from client to client.

        x <- x + N(0, (strength t / (K - 1) std x)^2) on client t = 0, ..., K - 1, for every feature that is numeric

    Whole numbers are rounded and kept in the range of their type. FedBS, section III-A ("same label, different
    features"); Li et al. 2022 (NIID-Bench), section 4.2, with noise in absolute units.

    Args:
        labels: one label per sample [N]; only their number matters.
        clients: number of clients K.
        strength: noise on the last client, in standard deviations of the column; 0.1 is slight, 1 is strong.
        seed: key of the deal and of the noise.

    Returns:
        K ascending int64 arrays of indices; `shift` is the `Noise` that `make` applies.

    Raises:
        InputError: a value is out of range.
    """
    strength = positive("strength", strength)
    parts = iid(labels, clients=clients, seed=seed)
    levels = strength * np.arange(len(parts)) / max(len(parts) - 1, 1)
    return Parts(parts, shift=Noise(levels, seed), report={"deviations_on_the_last_client": strength})


def concept(labels: npt.ArrayLike, *, clients: int, strength: float = 0.5, seed: int = 0) -> Parts:
    """Deal evenly, and exchange the names of some classes on each client.

        y <- pi_t(y)   with pi_t a random cycle through a random floor(strength C + 1/2) of the classes

    FedBS, section III-A ("same features, different labels").

    Args:
        labels: one label per sample [N].
        clients: number of clients K.
        strength: share of the classes that a client renames, above 0 and at most 1; at least two classes.
        seed: key of the deal and of the names.

    Returns:
        K ascending int64 arrays of indices; `shift` is the `Relabelling` that `make` applies.

    Raises:
        InputError: a value is out of range, or there is only one class.
    """
    codes, columns = encode(labels)
    if positive("strength", strength) > 1:
        raise InputError(f"strength is {strength!r}: give a share of the classes, above 0 and 1 at most")
    if columns.size < 2:
        raise InputError("there is one class, which cannot be renamed: give labels of two classes or more")
    parts = iid(codes, clients=clients, seed=seed)
    renamed = max(2, int(strength * columns.size + 0.5))
    random = generator(read_seed(seed), Purpose.RELABEL)
    names = np.tile(np.arange(columns.size), (len(parts), 1))
    for name in names:
        cycle = random.permutation(columns.size)[:renamed]
        name[cycle] = np.roll(cycle, 1)
    return Parts(parts, shift=Relabelling(names), report={"classes_renamed_on_each_client": renamed})


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on numeric columns; `levels` [K] are in standard deviations of the column."""

    levels: Floats
    seed: int

    def fit(self, batches: Iterable[pa.RecordBatch], label: str, classes: Sequence[Any]) -> Change:
        """Measure the columns' standard deviations over all samples; raise InputError if none is numeric."""
        import pyarrow as pa

        from partitioning.measures.numeric import deviations, flatten, unflatten

        spreads = deviations(batches, label)

        def add(client: int, batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for place, (name, spread) in enumerate(spreads.items()):
                numbers = flatten(columns[name])
                noise = generator(self.seed, Purpose.NOISE, client, place).standard_normal(numbers.size)
                columns[name] = unflatten(numbers + self.levels[client] * spread * noise, columns[name])
            return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)

        return add

    def relabel(self, clients: Integers, codes: Integers) -> Integers:
        """Return the classes unchanged."""
        return codes


@dataclass(frozen=True)
class Relabelling:
    """Exchanged class names; `names` [K, C] holds the new class of each class of a client."""

    names: Integers

    def fit(self, batches: Iterable[pa.RecordBatch], label: str, classes: Sequence[Any]) -> Change:
        """Return the change, which needs no measurement."""
        import pyarrow as pa

        from partitioning.common.columns import class_codes, value_type

        def rename(client: int, batch: pa.RecordBatch) -> pa.RecordBatch:
            column = batch.column(label)
            codes = self.names[client][class_codes(column, classes)]
            renamed = pa.array(list(classes), type=value_type(column.type)).take(pa.array(codes))
            return batch.set_column(
                batch.schema.get_field_index(label), batch.schema.field(label), _encode_as(renamed, column)
            )

        return rename

    def relabel(self, clients: Integers, codes: Integers) -> Integers:
        """Return the new classes."""
        renamed: Integers = self.names[clients, codes]
        return renamed


def _encode_as(values: pa.Array, column: pa.Array) -> pa.Array:
    import pyarrow as pa

    # Encode in the column's own dictionary, because an Arrow file holds one per column.
    if not pa.types.is_dictionary(column.type):
        return values
    import pyarrow.compute as pc

    indices = pc.index_in(values, value_set=column.dictionary).cast(column.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary, ordered=column.type.ordered)
