"""Options of a partition: the scheme, its parameters, the clients that are held out, and what is stored of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from partitioning.common.checks import read_seed, share, whole
from partitioning.common.columns import check_columns, is_image, is_label
from partitioning.common.errors import InputError, excerpt, listing, suggestion
from partitioning.schemes.registry import SCHEMES, UNLABELLED, check_clients, parameters, resolve, takes
from partitioning.sources.joined import JoinedSource
from partitioning.sources.source import Source
from partitioning.store.splits import Splits


@dataclass(frozen=True)
class PartitionOptions:
    """Options of a partition, as `make` takes them by name.

    Args:
        scheme: name in `SCHEMES`.
        clients: number of clients K; None if the scheme finds the clients in the data.
        seed: key of every draw.
        label: label column: whole numbers or strings, which are classes; or images, floats, or lists of a fixed size,
            which are all of one class. The labels of a pair get this name.
        by: column whose values stand for the classes, if labels are none; it is no feature then.
        test_clients: clients held out for test, a share in (0, 1) or a number.
        validation_clients: clients held out for validation, a share in (0, 1) or a number.
        folds: number of folds of clients, instead of held-out clients; 3 or more, 0 for none. See `Population.fold`.
        stratify: whether held-out groups or folds get clients of similar sizes.
        local_test: share of each client's samples that is its own test part: its last floor(share n) rows. Or the name
            of a column, no feature then, that is "test" or true for rows of the test part, and "train" or false for
            the others.
        site: column with the site of a client, equal in all of its rows. Clients that the data name are sorted by
            site, and no shard holds clients of two sites.
        features: columns whose values are counted on every client; see `describe_features`. The scheme dirichlet-qp
            samples them if `feature_alpha` is given.
        buckets: number of quantile buckets of a numeric feature.
        standardise: whether to store mean and standard deviation of every numeric column; see `Population.moments`.
        index_only: whether to write only the row numbers of each client, without samples.
        missing: columns that may have missing values; other columns with some are refused.
        parameters: further parameters of the scheme; column parameters by column name.
    """

    scheme: str
    clients: int | None = None
    seed: int = 0
    label: str = "label"
    by: str | None = None
    test_clients: float = 0
    validation_clients: float = 0
    folds: int = 0
    stratify: bool = False
    local_test: float | str = 0.0
    site: str | None = None
    features: Sequence[str] = ()
    buckets: int = 4
    standardise: bool = False
    index_only: bool = False
    missing: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "PartitionOptions":
        """Return the options of these names; any other name is a parameter of the scheme.

        Raises:
            InputError: there is no scheme, a value has the wrong type, or the seed or `local_test` is out of range.
        """
        if "scheme" not in given:
            raise InputError(f"scheme is missing: choose {listing(list(SCHEMES))}")
        for name in ("scheme", "label", "by", "site"):
            if name in given and not (isinstance(given[name], str) or (name in ("by", "site") and given[name] is None)):
                raise InputError(f"{name} is {given[name]!r:.80}: give a name as text")
        for name in ("stratify", "standardise", "index_only"):
            if name in given and not isinstance(given[name], bool):
                raise InputError(f"{name} is {given[name]!r:.80}: give True or False")
        names = {each.name for each in fields(cls)} - {"parameters"}
        own = {name: value for name, value in given.items() if name in names}
        local_test = given.get("local_test", cls.local_test)
        checked = {
            "seed": read_seed(given.get("seed", cls.seed)),
            "local_test": local_test if isinstance(local_test, str) else share("local_test", local_test),
            "features": _names("features", given.get("features", cls.features)),
            "missing": _names("missing", given.get("missing", cls.missing)),
            "parameters": {name: value for name, value in given.items() if name not in names},
        }
        return cls(**own | checked)

    @property
    def classes(self) -> str:
        """Column of the classes."""
        return self.by or self.label

    def splits(self, clients: int) -> Splits:
        """Return the split of so many clients; raise InputError as `Splits.of`."""
        return Splits.of(
            clients,
            test_clients=self.test_clients,
            validation_clients=self.validation_clients,
            folds=self.folds,
            stratify=self.stratify,
        )

    def check(self, source: Source) -> None:
        """Raise InputError if the options do not fit the source, before any of its rows is read."""
        check_columns(source.schema, self.label, name=source.name)
        self.resolve(source)
        if self.clients is not None:
            self.splits(whole("clients", self.clients, least=1))

    def resolve(self, source: Source) -> dict[str, Any]:
        """Return all parameters of the scheme, defaults included; raise InputError if they do not fit the source."""
        given = dict(self.parameters)
        if isinstance(source, JoinedSource) and takes(self.scheme, "domain"):
            given.setdefault("domain", None)  # each source is a domain
        resolved = resolve(self.scheme, given)
        check_clients(self.scheme, self.clients)
        for name, column in self.column_parameters(resolved).items():
            if not (isinstance(column, str) or (column is None and isinstance(source, JoinedSource))):
                raise InputError(f"{name} is {column!r:.80}: give a column's name as text")
        self._check_classes(source)
        known = source.schema.names
        for name in (*self.dividing_columns(resolved), *self.features):
            if name not in known:
                raise InputError(
                    f"{source.name} has no column {name!r}: choose {excerpt(known)}" + suggestion(name, known)
                )
        return resolved

    def _check_classes(self, source: Source) -> None:
        """Raise InputError if the scheme divides by classes and there are none, or `by` is not needed for them."""
        kind, names = source.schema.field(self.label).type, source.schema.names
        if self.by is not None:
            if self.by not in names:
                near = suggestion(self.by, names)
                raise InputError(f"{source.name} has no column by = {self.by!r}: choose {excerpt(names)}{near}")
            if is_label(kind):
                raise InputError(
                    f"by = {self.by!r} with classes in the label column {self.label!r}: is only for labels that are "
                    "numbers or images; leave it out, or name it as the label"
                )
            if not is_label(source.schema.field(self.by).type) or self.scheme == "concept":
                raise InputError(
                    f"by = {self.by!r} with scheme {self.scheme!r}: must be a column of whole numbers or strings, and "
                    "not with 'concept', which changes labels; name another column"
                )
        elif self.scheme not in UNLABELLED and not is_label(kind):
            what = "images" if is_image(kind) else "numbers"
            raise InputError(
                f"scheme {self.scheme!r} divides by classes, and the label {self.label!r} of {source.name} holds "
                f"{what}: name a column of classes by `by`, or choose {listing(UNLABELLED)}"
            )

    def column_parameters(self, resolved: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the column of each parameter that holds one value per sample."""
        return {name: resolved[name] for name, parameter in parameters(self.scheme).items() if parameter.is_column}

    def dividing_columns(self, resolved: Mapping[str, Any]) -> list[str]:
        """Return the columns that name a row's client, domain, site, class or split, and are no features."""
        split = self.local_test if isinstance(self.local_test, str) else None
        names = (*self.column_parameters(resolved).values(), self.site, self.by, split)
        return list(dict.fromkeys(name for name in names if name is not None))


def _names(key: str, value: object) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{key} is {value!r:.80}: give a list of columns' names")
    return tuple(map(str, names))
