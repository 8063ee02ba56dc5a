"""A commented experiment file for the user's data, as `raysim init` writes it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from algorithms.training.loss import LabelKind
from partitioning import Population
from partitioning.common.columns import check_text, distinct, is_label, repeated
from partitioning.common.errors import excerpt, listing, nearest
from partitioning.common.text import printable, word
from partitioning.sources.joined import JoinedSource
from partitioning.sources.layout import arranged
from partitioning.sources.opening import open_source
from partitioning.sources.source import Source
from partitioning.store.manifest import MANIFEST
from raysim.cli.table_facts import OWNER, ColumnFacts, facts_of
from raysim.common.errors import InputError, unknown
from raysim.data.catalogue import BESIDE, DATASETS, FILE, FOLDER, HUB, SHIFTED, check_dataset, is_path
from raysim.data.columns import missing_rows
from raysim.data.features import ArrayColumn, ImageColumn, check_label, form_of, is_number
from raysim.data.hub import tables_in
from raysim.data.targets import is_sequence, label_kind

TEXT = "text"
"""Usual name of a column of text."""

LABELS = ("label", "labels", "target", "class", "y", "outcome", "diagnosis", "species")
"""Usual names of the label column, the likeliest first."""

MODELS = {"shakespeare": "lstm", "plays": "transformer", "cityscapes": "deeplab_v3plus"}
"""Models of data sets that neither `mlp` nor `cnn` fits."""

MODELS_OF_LABELS: Mapping[LabelKind, str] = {"pixels": "deeplab_v3plus", "sequence": "transformer"}
"""Models of labels that are neither classes nor numbers of samples."""

LABELS_IN_WORDS: Mapping[LabelKind, str] = {
    "pixels": "a class for each pixel",
    "sequence": "a class for each position",
    "numbers": "numbers",
}
"""Labels that are no class of a sample, in words."""

MOST_CLASSES = 8
"""Most classes that a comment lists."""

TEST = re.compile(r"(?<![a-z])(test|testing|val|valid|validation|dev|eval|evaluation)(?![a-z])")
"""Names of a folder's files that are a test set of the hub."""

LEAST_OWNERS, MOST_OWNERS = 3, 3
"""Fewest different texts of a column that may say whose a row is, and most such columns in comments."""

FEW_CLIENTS = 10
"""Largest number of clients that all take part in each round, such as hospitals."""


@dataclass(frozen=True)
class Facts:
    """Facts about data, from which an experiment begins.

    Args:
        data: keys of `[data]` that name the data.
        about: description of the data in a line.
        model: name of a model that fits.
        sizes: whether images have many sizes.
        owner: column that says whose a row is; "" without one.
        owners: columns that may say whose a row is, if no name tells.
        few: whether there are at most `FEW_CLIENTS` clients, so that all take part in each round.
        without: columns that are no features.
        dates: columns among them that look like dates in another form.
        identifiers: features with a different whole number in every row.
        made: whether the clients exist already.
        test: whether the data have a test set of their own.
        labels: kind of the labels.
        text: column of text to read; "" without one.
        label: whether the data have a label; otherwise the text predicts itself.
        columns: all columns of a table, in words.
        encoded: keys of `[data.columns]`.
        codes: columns of few whole numbers, which may be categories.
        split: column that divides rows into training and test rows; "" without one.
        two_classes: whether the label has two classes.
        length: tokens of a sample.
        vocabulary: number of tokens of a transformer.
    """

    data: Mapping[str, object]
    about: str
    model: str
    sizes: bool = False
    owner: str = ""
    owners: Sequence[str] = ()
    few: bool = False
    without: Sequence[str] = ()
    dates: Sequence[str] = ()
    identifiers: Sequence[str] = ()
    made: bool = False
    test: bool = False
    labels: LabelKind = "class"
    text: str = ""
    label: bool = True
    columns: Sequence[str] = ()
    encoded: Mapping[str, object] = field(default_factory=dict)
    codes: Sequence[str] = ()
    split: str = ""
    two_classes: bool = False
    length: int = 128
    vocabulary: int = 256


def experiment_for(data: str, file: str, label: str | None = None) -> str:
    """Return the text of an experiment file.

    Args:
        data: name of a data set, or path of a table, of a folder of images, or of a population.
        file: path of the experiment file, for its first lines.
        label: label column of a table; by default the likeliest.

    Raises:
        InputError: there are no such data, they cannot be read, or no column can be the label.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("raysim.cli", package_path=""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"toml": _toml, "listing": listing, "printable": printable, "word": word}
    return environment.get_template("experiment.toml.j2").render(facts=_facts(data, label), name=data, file=file)


def _toml(keys: Mapping[str, object]) -> str:
    """Return keys as lines of TOML, a line each."""
    # A text of JSON is one of TOML, but for this one character.
    values = {key: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for key, value in keys.items()}
    return "\n".join(f"{key} = {value}" for key, value in values.items())


def _facts(data: str, label: str | None) -> Facts:
    path = Path(data.removeprefix(FILE).removeprefix(FOLDER)).expanduser()
    if path.is_dir() and (path / MANIFEST).is_file():
        few = Population.open(path).manifest.counts.clients <= FEW_CLIENTS
        return Facts({"population": str(path)}, "clients made earlier", "mlp", few=few, made=True, test=True)
    if path.is_dir() and (tables := tables_in(path)):
        train = [table for table in tables if not TEST.search(str(table.relative_to(path)))] or tables
        facts = _of_table(_together(train), str(path), label)
        dataset = f"{HUB}{path if path.is_absolute() else f'./{path}'}"
        return replace(facts, data={**facts.data, "dataset": dataset}, test=len(train) < len(tables))
    if path.is_dir():
        return Facts({"dataset": f"{FOLDER}{path}"}, "images by class", "cnn", sizes=True)
    if path.is_file():
        return _of_table(open_source(path), str(path), label)
    if is_path(data) or data.startswith((FILE, FOLDER)):
        folder = path.parent
        near = nearest(path.name, (each.name for each in folder.iterdir())) if folder.is_dir() else []
        remedy = f"did you mean {str(folder / near[0][0])!r}?" if near else "check the path"
        raise InputError(f"no file or folder {str(path)!r}: must be the path of your data; {remedy}")
    check_dataset(data)
    name = BESIDE.split(data.removeprefix(SHIFTED))[0].partition(",")[0].strip()
    if name not in DATASETS:
        raise InputError(
            f"{data!r}: must be a file, a folder or the name of a data set, and is missing; check the path"
        )
    known = DATASETS[name]
    has_images = re.search(r"\dx\d|many sizes", known.description) is not None
    owner = "" if "domain" in known.dividing else next(iter(known.dividing), "")
    sites = re.search(r"\b(\d+) (hospitals|sites)\b", known.description)
    return Facts(
        {"dataset": data},
        known.description,
        MODELS.get(name, "cnn" if has_images else "mlp"),
        sizes="many sizes" in known.description,
        owner=owner,
        few=bool(owner and sites and int(sites[1]) <= FEW_CLIENTS),
        test="for test" in known.description,
        text=known.label if known.label == TEXT else "",
        label=known.label != TEXT,
    )


def _together(tables: Sequence[Path]) -> Source:
    """Return tables as one source; the first one alone if they differ, because a run may read them all the same."""
    sources = tuple(map(open_source, tables))
    try:
        return JoinedSource(sources)
    except InputError:
        return sources[0]


def _of_table(source: Source, path: str, label: str | None) -> Facts:
    if (twice := repeated(source.schema.names)) is not None:
        raise InputError(f"{path} has several columns named {twice!r}: give each its own name")
    label = _label({field.name: field.type for field in source.schema}, label, path)
    schema, labels = _schema(source, label, path)
    others = [name for name in schema.names if name != label]
    classes, two = _classes(source, label) if labels == "class" else (LABELS_IN_WORDS[labels], False)
    facts = {each.name: each for each in facts_of(source) if each.name != label}
    owners = (n for n in others if OWNER.fullmatch(n) and is_label(schema.field(n).type))
    owner = next((n for n in owners if facts[n].repeats and not facts[n].missing), "")
    split = next((name for name, each in facts.items() if each.is_split and owner), "")
    features = [each for name, each in facts.items() if name not in (owner, split)]
    texts = [each.name for each in features if each.is_text]
    has_images = any(_is_image(schema.field(name)) for name in others)
    data = {"dataset": f"{FILE}{path}"} | ({} if label == LABELS[0] else {"label": label})
    about = f"{len(others)} columns and the label {label!r}: {classes}"
    few = bool(owner) and len(facts[owner].values) <= FEW_CLIENTS
    common = Facts(data, about, "mlp", owner=owner, few=few, labels=labels, split=split, two_classes=two)
    if len(texts) == len(others) - bool(owner) - bool(split) and (
        len(texts) == 1 or not all(facts[name].is_category for name in texts)
    ):  # there is nothing else to learn from
        return replace(common, model="transformer", text=texts[0])
    plain = [each for each in features if (is_number(each.kind) or each.signs) and not (has_images or each.is_empty)]
    encoded = [] if has_images else [each for each in features if each.is_category or each.is_date]
    kept = {owner, split, *(each.name for each in (*plain, *encoded))}
    apart = [name for name in others if name not in kept and not (has_images and _is_image(schema.field(name)))]
    return replace(
        common,
        model=MODELS_OF_LABELS.get(labels, "cnn" if has_images else "mlp"),
        sizes=has_images,
        without=[name for name in apart if name in facts or not _is_feature(schema.field(name))],
        dates=[name for name in apart if name in facts and facts[name].is_foreign_date],
        identifiers=[each.name for each in plain if each.is_identifier],
        columns=[each.line for each in facts.values()],
        encoded=_encoded(plain, encoded),
        owners=[] if owner else _owners(encoded),
        codes=[each.name for each in plain if each.may_be_category],
        **(_tokens(source, schema, [*others, label]) if labels == "sequence" else {}),
    )


def _schema(source: Source, label: str, path: str) -> tuple[pa.Schema, LabelKind]:
    """Return the columns as models read them, in which lists of one length are arrays, and the kind of the labels.

    Raises:
        InputError: there are no rows, or the label column cannot hold labels.
    """
    first = next((batch for batch in source.batches() if batch.num_rows), None)
    if first is None:
        raise InputError(f"{path} has no rows: must have samples; add some")
    schema = arranged(pa.Table.from_batches([first]), label).schema
    check_label(schema, label, path)
    return schema, label_kind(schema, label)


def _tokens(source: Source, schema: pa.Schema, columns: Sequence[str]) -> dict[str, Any]:
    """Return the length and the number of tokens of sequences that have a class for each position."""
    columns = [name for name in columns if is_sequence(schema.field(name))]
    largest = [pc.max(pc.list_flatten(each)).as_py() for batch in source.batches(columns) for each in batch.columns]
    length = schema.field(columns[-1]).type.list_size
    return {"length": length, "vocabulary": 1 + max([1, *(each for each in largest if each is not None)])}


def _owners(encoded: Sequence[ColumnFacts]) -> list[str]:
    """Return the columns of repeated texts that may say whose a row is, those of most texts first."""
    found = [each for each in encoded if each.is_category and each.repeats and not each.missing]
    found = sorted(found, key=lambda each: -len(each.values))
    return [each.name for each in found if len(each.values) >= LEAST_OWNERS][:MOST_OWNERS]


def _encoded(plain: Sequence[ColumnFacts], encoded: Sequence[ColumnFacts]) -> dict[str, object]:
    """Return the keys of `[data.columns]` for columns of numbers, and for categories and dates."""
    keys: dict[str, object] = {
        "categories": [each.name for each in encoded if each.is_category],
        "dates": [each.name for each in encoded if each.is_date],
        "na_values": sorted({sign for each in plain for sign in each.signs}),
        "impute": "median" if any(each.missing or each.signs for each in (*plain, *encoded)) else "",
    }
    return {key: value for key, value in keys.items() if value}


def _label(fields: dict[str, pa.DataType], label: str | None, where: str) -> str:
    if label is not None:
        if label not in fields:
            raise unknown(f"label column --label = {label!r} of {where}", label, list(fields))
        return label
    names = {name.casefold(): name for name in fields}
    able = [names[name] for name in LABELS if name in names]
    if not able:
        raise InputError(
            f"{where} has no column named like a label: must be named by --label; it has {excerpt(fields)}"
        )
    return able[0]


def _classes(source: Source, label: str) -> tuple[str, bool]:
    """Return the classes in words, and whether they are two."""
    found = distinct(_texts(source, label))
    words = ", ".join(map(str, found)) if len(found) <= MOST_CLASSES else f"{len(found)} classes"
    return words, len(found) == 2


def _texts(source: Source, label: str) -> Iterator[pa.Array]:
    """Yield the labels; raise InputError if one is no text in UTF-8."""
    rows = 0
    for batch in source.batches([label]):
        check_text(batch, name=source.name, first=rows)
        if missing_rows(batch.column(0)):
            raise InputError(f"label column {label!r} has missing values: fill them in, or drop the rows")
        rows += batch.num_rows
        yield batch.column(0)


def _is_feature(field: pa.Field) -> bool:
    try:
        form_of(field)
    except InputError:
        return False
    return True


def _is_image(field: pa.Field) -> bool:
    form = form_of(field) if _is_feature(field) else None
    return isinstance(form, ImageColumn) or (isinstance(form, ArrayColumn) and len(form.shape) > 1)
