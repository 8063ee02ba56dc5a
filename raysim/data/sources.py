"""Tables of the data set that `data.dataset` names."""

import errno
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.columns import is_label, repeated
from partitioning.common.paths import cache, expanded
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError, unknown
from raysim.data.catalogue import BESIDE, DATASETS, FILE, FOLDER, HUB, MEMORY, SHIFTED, SYNTHETIC, check_name
from raysim.data.columns import PLAIN, ColumnRules
from raysim.data.domains import DOMAIN, join, split_by_domain
from raysim.data.features import LABEL, check_label, features
from raysim.data.folders import read_folder
from raysim.data.hub import by_features, read_hub, tables_in
from raysim.data.memory import HeldData
from raysim.data.reading import check_values
from raysim.data.sets.synthetic import read_synthetic
from raysim.data.sets.tabular import ALL, SUFFIXES, TableUse, read_tables, usable
from raysim.data.targets import check_classes_of_samples, joined_labels, with_classes
from raysim.data.tokens import NEXT, Tokenizer

USER_ERRORS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
"""Errors of the operating system for a path that the user can correct."""


@dataclass(frozen=True)
class LoadedDataSet:
    """A data set as tables: the rows to partition, and the test set if it has one.

    Args:
        name: name asked for, "digits" or "file:PATH.parquet".
        train: label column, features, and columns that identify a row's owner.
        test: the same columns, or None.
        label: name of the label column.
        dividing: columns that identify a row's owner: a domain, a speaker, a hospital.
    """

    name: str
    train: pa.Table
    test: pa.Table | None
    label: str
    dividing: tuple[str, ...] = ()

    def divided_by(self, columns: Collection[str]) -> "LoadedDataSet":
        """Return the data set without the dividing columns that a scheme does not name; they are no features."""
        return self._dropping([name for name in self.dividing if name not in columns and name != self.label])

    def labelled_by(self, labels: Sequence[str], keep: Collection[str]) -> "LoadedDataSet":
        """Return the data set with columns of numbers as its label, if there are any; see `joined_labels`."""
        tables, label = [self.train] if self.test is None else [self.train, self.test], self.label
        for place, table in enumerate(tables if labels else ()):
            tables[place], label = joined_labels(table, labels, keep)
        train, *test = with_classes(tables, label)
        return replace(self, train=train, test=test[0] if test else None, label=label)

    def without(self, columns: Sequence[str]) -> "LoadedDataSet":
        """Return the data set without these columns; raise an InputError for the label or an unknown name."""
        others = [name for name in self.train.schema.names if name != self.label]
        for name in columns:
            if name not in others:
                raise unknown(f"column {name!r} of data.without", name, others)
        return self._dropping(columns)

    def tokenised(self, text: Tokenizer | None, dividing: Collection[str], keep: Collection[str]) -> "LoadedDataSet":
        """Return the data set with tokens in the place of its text; see `Tokenizer`."""
        if text is None:
            return self
        owners = tuple(dict.fromkeys((*self.dividing, *dividing)))
        parts = (None if each is None else text(each, self.label, owners, keep) for each in (self.train, self.test))
        train, test = parts
        dividing = tuple(name for name in self.dividing if name not in text.columns)
        label = self.label if text.predict == "label" else NEXT
        return replace(self, train=train, test=test, label=label, dividing=dividing)

    def _dropping(self, columns: Sequence[str]) -> "LoadedDataSet":
        train, test = _dropped(self.train, self.test, columns)
        return replace(self, train=train, test=test, dividing=tuple(n for n in self.dividing if n not in columns))


def load(
    dataset: str | HeldData,
    *,
    root: str | None = None,
    label: str | Sequence[str] | None = None,
    dividing: Collection[str] = (),
    needed: Mapping[str, str] = MappingProxyType({}),
    without: Sequence[str] = (),
    shifts: Sequence[str] = (),
    text: Tokenizer | None = None,
    rules: ColumnRules = PLAIN,
    like: pa.Schema | None = None,
    seed: int = 0,
) -> LoadedDataSet:
    """Load a data set to partition.

    Columns that identify a row's owner are dropped unless `dividing` names them.

    Args:
        dataset: one of `DATASETS`, one of `DATASET_FORMS`, or data in memory.
        root: folder of the data set's files, and start of a relative PATH; by default raysim's cache, and for a PATH
            the working directory.
        label: name of the label column, or names of columns of numbers; by default the data set's own, usually "label".
        dividing: columns that identify a row's owner and are no features.
        needed: key of the experiment file that names each column, for columns that must exist.
        without: columns to drop, of any type.
        shifts: domains of "shifted:NAME".
        text: tokenizer of columns of text; None for data without them.
        rules: rules for columns that are no plain numbers.
        like: schema of the training rows if this is a table of test rows; its types are taken where values fit.
        seed: key of the draws.

    Raises:
        InputError: an unknown name, missing or damaged files, a table that cannot be trained on, or a class that only
            the test set has.
    """
    first, *others = [label] if label is None or isinstance(label, str) else label
    apart = [*dividing, *without, *others]
    if text is not None:
        first, apart = text.label(first), [*apart, *text.columns]
    use = TableUse(first, tuple(apart), rules if text is None else None, tuple(without), tuple(needed), like)
    source = read(dataset, root=root, use=use, shifts=shifts, seed=seed).without(without)
    for name, key in needed.items():
        if name not in source.train.schema.names:
            raise unknown(f"column {key} = {name!r}", name, source.train.schema.names)
    listed = () if label is None or isinstance(label, str) else label
    source = source.tokenised(text, dividing, listed).divided_by(dividing).labelled_by(listed, dividing)
    if source.label in source.dividing:
        raise InputError(
            f"{dataset} has no column of classes, because {source.label!r} identifies a row's owner: `raysim export` "
            "can write it, but no model can be trained on it; name another data set"
        )
    besides = {source.label, *dividing}
    rules.check_names(source.train.schema, besides)
    features(rules.as_numbers(source.train.schema), source.label, dividing)
    check_classes(source.train, source.test, source.label, source.name)
    return source


def read(
    dataset: str | HeldData,
    *,
    root: str | None = None,
    use: TableUse = ALL,
    shifts: Sequence[str] = (),
    seed: int = 0,
) -> LoadedDataSet:
    """Read a data set with all its columns.

    Args:
        use: label, and use of the columns of the user's own tables. The other arguments are those of `load`.
    """
    try:
        return _read(dataset, root, use, shifts, seed)
    except OSError as error:
        if error.errno not in USER_ERRORS:
            raise
        raise InputError(
            f"{str(dataset)[:80]!r} in data.root = {str(root)[:80]!r} cannot be read ({error.strerror}: "
            f"{str(error.filename)[:80]!r}): must be a path that you may read; correct it"
        ) from error


def check_classes(train: pa.Table, test: pa.Table | None, label: str, name: str) -> None:
    """Check that every class of the test set is also in the training set.

    Raises:
        InputError: one is not, or the labels are of two kinds.
    """
    if test is None or label not in test.schema.names or not is_label(train.schema.field(label).type):
        return
    known, tested = (set(pc.unique(part[label]).to_pylist()) for part in (train, test))
    lacking = sorted(tested - known, key=str)
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise InputError(
            f"class {lacking[0]!r}{more} of column {label!r} is in the test set of {name} and not in its training "
            "set: add rows of it, or drop its test rows"
        )


def _read_features(tables: Tables, name: str, where: str, use: TableUse) -> LoadedDataSet:
    parts, label = by_features(tables, use.label, use.dividing, where)
    use = replace(use, label=label)
    train = usable(parts[0], where, use)
    test = None if parts[1] is None else usable(parts[1], where, replace(use, like=train.schema))
    return LoadedDataSet(name, train, test, label)


def _read(dataset: str | HeldData, root: str | None, use: TableUse, shifts: Sequence[str], seed: int) -> LoadedDataSet:
    if isinstance(dataset, HeldData):
        if shifts:
            raise InputError(f"data.shifts = {list(shifts)} with data in memory: is only for shifted:NAME; remove it")
        return _read_features((dataset.train, dataset.test), dataset.name, "the data in memory", use)
    if dataset.startswith(SHIFTED):
        from raysim.data.shifts import shifted  # late, because it imports SciPy's images

        name = dataset.removeprefix(SHIFTED)
        if name.startswith(SHIFTED):
            raise InputError(f"{dataset!r} has {SHIFTED!r} twice: must have it once; list all shifts in data.shifts")
        base = read(name, root=root, use=TableUse(use.label, (DOMAIN,)), seed=seed)
        check_classes_of_samples(base.train.schema, base.label, f"data.dataset = {dataset!r}")
        train, test = shifted((base.train, base.test), base.label, shifts, seed)
        return LoadedDataSet(dataset, train, test, base.label, (DOMAIN,))
    if shifts and not BESIDE.search(dataset):
        raise InputError(
            f"data.shifts = {list(shifts)} with data.dataset = {dataset!r}: is only for shifted:NAME; "
            f'set data.dataset = "shifted:{dataset}"'
        )
    if dataset.startswith(MEMORY):
        raise InputError(
            f"data.dataset = {dataset!r}: stands for data that were in memory, and they are not; call raysim.run with "
            "the data themselves"
        )
    if dataset.startswith(HUB):
        return _read_features(read_hub(dataset, root, use.label), dataset, dataset, use)
    for prefix in (FILE, FOLDER):
        if dataset.startswith(prefix):
            return _read_own(dataset, prefix, expanded("data.root", root or "."), use)
    if dataset.startswith(SYNTHETIC):
        table, label = read_synthetic(dataset, seed), use.label or LABEL
        check_label(table.schema, label, dataset)
        return LoadedDataSet(dataset, table, None, label, ("client",))
    return _read_named(dataset, expanded("data.root", root) if root else cache() / "data", use.label, seed, shifts)


def _read_own(dataset: str, prefix: str, root: Path, use: TableUse) -> LoadedDataSet:
    label = use.label or LABEL
    named = [path.strip() for path in dataset.removeprefix(prefix).split(",")]
    if "" in named:
        raise InputError(f"{dataset!r} has an empty path: must be {prefix}PATH, or {prefix}PATH,PATH; name each")
    paths = [root / expanded("data.dataset", path) for path in named]
    if hub := next((path for path in paths if tables_in(path)), None):
        raise InputError(
            f"{hub} is a folder in the hub's layout: must begin with {HUB}; write {f'{HUB}{hub.absolute()}'!r}"
        )
    if prefix == FOLDER and label != LABEL:
        raise InputError(f"data.label = {label!r} with {dataset}: must be left out, because folders name the classes")
    parts: list[Tables] = (
        [read_folder(path) for path in paths]
        if prefix == FOLDER
        else [(table, None) for table in read_tables(paths, use)]
    )
    if len(paths) == 1:
        (train, test), own = parts[0], prefix == FOLDER and DOMAIN in parts[0][0].schema.names
        return LoadedDataSet(dataset, train, test, label, (DOMAIN,) if own else ())
    domains = [_domain_name(path) for path in paths]
    if (twice := repeated(domains)) is not None:
        raise InputError(f"two paths of {dataset} are domains named {twice!r}: rename one")
    dividing, rules = tuple(set(use.dividing) - {DOMAIN}), use.rules or PLAIN
    train, test = join(dict(zip(domains, parts, strict=True)), label, dividing, rules)
    return LoadedDataSet(dataset, train, test, label, (DOMAIN,))


def _domain_name(path: Path) -> str:
    # `raysim export` writes NAME-test beside NAME: both are the domain NAME.
    return re.sub(r"-(train|test)$", "", path.stem) if path.suffix in (".parquet", *SUFFIXES) else path.name


def _read_named(dataset: str, root: Path, label: str | None, seed: int, shifts: Sequence[str]) -> LoadedDataSet:
    before, *beside = BESIDE.split(dataset, maxsplit=1)
    names, bases = [name.strip() for name in before.split(",")], [name.strip() for name in beside]
    for name in [*names, *bases]:
        check_name(name)
        if names.count(name) > 1:
            raise InputError(f"data.dataset names {name!r} twice: must name each domain once; remove one")
    label = DATASETS[names[0]].label if label is None else label
    parts = {name: _checked(name, root, label, seed) for name in names}
    if len(names) == 1 and not bases:
        train, test = parts[names[0]]
        return LoadedDataSet(dataset, train, test, label, DATASETS[names[0]].dividing)
    several = [_domains(name, parts[name]) for name in names]
    if bases:
        from raysim.data.shifts import shift_domains  # late, because it imports SciPy's images

        several += [shift_domains(_checked(base, root, label, seed), label, shifts, seed) for base in bases]
    if (twice := repeated(name for domains in several for name in domains)) is not None:
        raise InputError(
            f"data.dataset and data.shifts give the domain {twice!r} twice: must give each once; remove a data set, or "
            "remove it from data.shifts"
        )
    train, test = join({name: tables for domains in several for name, tables in domains.items()}, label)
    return LoadedDataSet(dataset, train, test, label, (DOMAIN,))


def _domains(name: str, tables: Tables) -> Mapping[str, Tables]:
    """Return a data set's own domains, or else itself as one, without its dividing columns."""
    dividing = DATASETS[name].dividing
    if DOMAIN not in dividing:
        return {name: _dropped(*tables, dividing)}
    train, test = ({} if table is None else split_by_domain(table, DOMAIN) for table in tables)
    return {each: _dropped(own, test.get(each), dividing) for each, own in train.items()}


def _checked(name: str, root: Path, label: str, seed: int) -> Tables:
    train, test = DATASETS[name].read(root, seed)
    check_label(train.schema, label, name)
    check_values(train, f"data set {name}")
    if test is not None:
        check_values(test, f"the test part of data set {name}")
    return train, test


def _dropped(train: pa.Table, test: pa.Table | None, columns: Sequence[str]) -> Tables:
    return train.drop_columns(list(columns)), None if test is None else test.drop_columns(list(columns))
