"""`[data]`: the samples, or a population made earlier, and their preparation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from partitioning.common.paths import absolute
from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.check import ConfigTable, changed_keys, checked, distinct, part

if TYPE_CHECKING:  # It imports pyarrow, which a refusal of the file does not need.
    from raysim.data.columns import ColumnRules
    from raysim.data.memory import HeldData

MOST_PIXELS = 4096
"""Largest height and width of an image, and largest padding."""

Pixels = Annotated[int, Field(ge=1, le=MOST_PIXELS)]
Fill = Literal["mean", "median", "most_frequent"]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]

AUGMENTATIONS: Mapping[str, None] = dict.fromkeys(("append", "crop", "resized-crop", "flip", "colour-jitter"))
"""Names of augmentations beside the user's own."""

FEDMMB: tuple[str, ...] = ("append", "flip", "colour-jitter")
"""Meaning of `"append"` alone: FedMMB's offline augmentation."""

ROW_KEYS = ("split", "classes", "sample")
"""Keys that choose the rows of a new population."""

STRENGTHS: Mapping[str, tuple[str, ...]] = {
    "crop_padding": ("crop",),
    "crop_size": ("crop", "resized-crop"),
    "crop_scale": ("resized-crop",),
    "crop_ratio": ("resized-crop",),
    **dict.fromkeys(("brightness", "contrast", "saturation", "hue"), ("colour-jitter",)),
}
"""Augmentations that read each key."""

PREPARATION = (*ROW_KEYS, "columns", "image_size", "channels", "standardise", "augment", *STRENGTHS)
"""Keys that prepare samples; the other keys name the samples."""

OWN_FILES = re.compile("(shifted:)?(file:|folder:|hf:(?=[./~]))")
"""Prefix of a data set that the user's own files hold."""


def _listed(names: str | tuple[str, ...]) -> tuple[str, ...]:
    listed = distinct((names,) if isinstance(names, str) else names)
    return FEDMMB if listed == ("append",) else listed


def _ascending(values: tuple[float, float]) -> tuple[float, float]:
    if values[0] > values[1]:
        raise ValueError("should be the lowest and the highest")
    return values


class TextTable(ConfigTable):
    """`[data.text]`: text as tokens; see `raysim.data.tokens.Tokenizer`."""

    tokenizer: str = "bytes"
    """Tokenizer: `bytes`, a name of the Hugging Face hub, with `@REVISION` if wanted, or a path: a folder or a
    `tokenizer.json`."""
    column: str | Annotated[tuple[str, str], AfterValidator(distinct)] = "text"
    """Column of text, or two columns of pairs of texts."""
    length: Annotated[int, Field(ge=1, le=2**20)] = 128
    """Tokens of a sample; longer texts are cut."""
    predict: Literal["label", "next-token"] = "label"
    """Label of a sample: the label column, or at each position the token that follows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of text."""
        return (self.column,) if isinstance(self.column, str) else self.column

    def located(self) -> TextTable:
        """Return the table with an absolute path of the tokenizer."""
        name = self.tokenizer
        is_path = name.startswith((".", "/", "~")) or name.endswith(".json")
        return self.model_copy(update={"tokenizer": str(absolute("data.text.tokenizer", name))}) if is_path else self


class ColumnsTable(ConfigTable):
    """`[data.columns]`: columns of a table that are no plain numbers; see `raysim.data.columns.ColumnRules`."""

    categories: Annotated[tuple[str, ...], AfterValidator(distinct)] = ()
    """Columns of categories: texts, whole numbers or others."""
    encode: Literal["onehot", "index"] = "onehot"
    """Numbers of a category: a column of 0 and 1 for each one, or its place in sorted order."""
    drop_first: bool = False
    """Whether one-hot columns leave out the first category."""
    dates: Annotated[tuple[str, ...], AfterValidator(distinct)] = ()
    """Columns of dates, which become days since 1970-01-01."""
    impute: Fill | float | dict[str, Fill | float | str] | None = None
    """Missing numbers and dates: a statistic of the training rows, or a number; categories take their most frequent
    one. Or a table of a rule for each column, "*" for the others. By default missing values are refused."""
    na_values: tuple[str | float, ...] | dict[str, tuple[str | float, ...]] = ()
    """Values that stand for missing ones, such as "?" or -9, in all columns, or a table of them for each column."""
    fit: Literal["global", "client"] = "global"
    """Training rows of that statistic: all training clients', or each training client's own."""

    @property
    def rules(self) -> ColumnRules:
        """The rules as a value."""
        from raysim.data.columns import ColumnRules  # late: it imports pyarrow

        keys = {key: value for key, value in self.beyond(ConfigTable).items() if key != "fit"}
        return ColumnRules(**keys, per_client=self.fit == "client")


class DataTable(ConfigTable):
    """`[data]`: the samples, or a population made earlier, and their preparation."""

    _held: Mapping[str, HeldData] = PrivateAttr(default_factory=dict)

    dataset: str | None = None
    """Data set: a name from `raysim list datasets`, `file:PATH` or `folder:PATH` for your own, or
    `hf:OWNER/NAME` of the Hugging Face hub. In Python also data in memory."""
    root: str | None = None
    """Folder of the data set's files; by default raysim's cache, and the working directory for your own files."""
    label: str | Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Label column, or a list of columns of numbers; by default the data set's own, which is mostly `label`."""
    text: TextTable | None = None
    """Text as tokens, `[data.text]`; by default a column of text is refused."""
    columns: ColumnsTable | None = None
    """Categories, dates and missing values of a table, `[data.columns]`; by default all columns are plain numbers."""
    without: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Columns to leave out, also of a `population`; by default, and with `[]`, none."""
    test: str | Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Global test set: a share of the rows, or a second data set; 0 keeps the data set's own. In Python also data in
    memory."""
    population: str | None = None
    """Folder or URI of a population made earlier; excludes `dataset`."""
    fold: Annotated[int, Field(ge=0)] | None = None
    """Test fold of `population`; by default the stored test clients."""
    validation: Annotated[int, Field(ge=0)] | None = None
    """Validation fold of `population`; by default the fold after `fold`."""
    shifts: tuple[str, ...] = ()
    """Domains to make of a `shifted:NAME` data set; required for one, otherwise empty."""
    per_domain: Annotated[int, Field(ge=1)] | None = None
    """Training rows kept in each domain; by default all of them."""
    split: Literal["train", "test", "all"] = "train"
    """Rows to partition; `all` joins training and test rows and leaves no global test set."""
    classes: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    """Classes whose rows are kept; by default all of them."""
    sample: Annotated[float, Field(gt=0, lt=1)] | Annotated[int, Field(ge=1)] | None = None
    """Training rows for a first try, drawn at random: a share or a number; by default all. The test set keeps the same
    share of its rows."""
    image_size: Pixels | tuple[Pixels, Pixels] | None = None
    """Height and width of resized images, or one number for both; by default no resizing."""
    channels: Literal[1, 3] | None = None
    """Channels of an image: 3 repeats grey, 1 takes the luma; by default as stored."""
    standardise: Literal["none", "global", "client"] = "none"
    """Standardisation of inputs: none, by all clients' training samples, or by each client's own."""
    augment: Annotated[str | tuple[str, ...], AfterValidator(_listed)] = ()
    """Random changes of training images, in order: `crop`, `resized-crop`, `flip`, `colour-jitter`, or your own
    `module:function`, also of other samples; `append` adds a changed copy of each row beforehand."""
    crop_padding: Annotated[int, Field(ge=0, le=MOST_PIXELS)] = 2
    """Pixels of value 0 on each side of an image before `crop` cuts it; after `standardise`, 0 is the mean."""
    crop_size: Pixels | tuple[Pixels, Pixels] | None = None
    """Height and width of a crop, or one number for both; by default the image's size."""
    crop_scale: Annotated[tuple[PositiveShare, PositiveShare], AfterValidator(_ascending)] = (0.08, 1.0)
    """Smallest and largest share of the area that `resized-crop` cuts out."""
    crop_ratio: Annotated[tuple[Positive, Positive], AfterValidator(_ascending)] = (3 / 4, 4 / 3)
    """Smallest and largest ratio of the sides that `resized-crop` cuts out."""
    brightness: Share = 0.2
    """Strength b of `colour-jitter`: brightness changes by a factor 1 ± b."""
    contrast: Share = 0.2
    """Strength c of `colour-jitter`: contrast changes by a factor 1 ± c."""
    saturation: Share = 0.2
    """Strength s of `colour-jitter`: saturation changes by a factor 1 ± s."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """Largest rotation of the hue by `colour-jitter`, in turns of the colour circle."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of resized images; None without resizing."""
        return _pair(self.image_size)

    @property
    def appends(self) -> bool:
        """Whether changed copies are added before partitioning; training then changes nothing."""
        return "append" in self.augment

    @property
    def changes(self) -> tuple[str, ...]:
        """Augmentations in their order."""
        return tuple(name for name in self.augment if name != "append")

    @property
    def own_changes(self) -> Mapping[str, Any]:
        """The user's own augmentations, by name.

        Raises:
            InputError: no such augmentation, or it has other parameters.
        """
        found = {name: own.resolve("data.augment", name, AUGMENTATIONS) for name in self.augment}
        changes = {name: own.instance("data.augment", name, each) for name, each in found.items() if ":" in name}
        for name, change in changes.items():
            own.check_parameters("data.augment", name, change, ("sample", "generator"))
        return changes

    @property
    def strengths(self) -> Mapping[str, Any]:
        """Arguments of the augmentations."""
        own = {key.removeprefix("crop_"): getattr(self, key) for key in STRENGTHS}
        return own | {"size": _pair(self.crop_size)}

    def source(self, key: str) -> str | HeldData:
        """Return the data set of the key `dataset` or `test`: its name, or the data in memory."""
        return self._held.get(key) or str(getattr(self, key))

    def holding(self, held: Mapping[str, HeldData]) -> DataTable:
        """Return the table with data in memory by key; files get their names."""
        table = self.model_copy(update={key: data.name for key, data in held.items()})
        table._held = held
        return table

    def located(self) -> DataTable:
        """Return the table with absolute paths; `root` is the base of the user's own files."""
        located = {}
        if self.population is not None:
            from partitioning.store.remote import is_uri  # late: it imports pyarrow

            if not is_uri(self.population):
                located["population"] = _absolute("population", self.population)
        if self.root is not None or OWN_FILES.match(self.dataset or ""):
            located["root"] = _absolute("root", self.root or "")
        if isinstance(self.test, str) and (form := OWN_FILES.match(self.test)):
            paths = [_absolute("test", self.root or "", path.strip()) for path in self.test[form.end() :].split(",")]
            located["test"] = form[0] + ",".join(paths)
        return self.model_copy(update=located)


def data_of(raw: Mapping[str, Any]) -> DataTable:
    """Check and resolve `[data]`.

    Raises:
        InputError: see `checked`; also keys that exclude each other.
    """
    data = checked(DataTable, raw, "data", besides=("text", "columns"))
    if "columns" in raw:
        data = data.model_copy(update={"columns": _columns_of(raw)})
    if "text" in raw:
        text = checked(TextTable, part(raw, "text", "data"), "data.text")
        if text.predict == "next-token" and (data.label is not None or len(text.columns) > 1):
            key, value = ("label", data.label) if data.label is not None else ("text.column", text.columns)
            raise InputError(
                f"data.{key} = {value!r} with data.text.predict = 'next-token': must be left out, because one column "
                "of text predicts itself; remove it"
            )
        data = data.model_copy(update={"text": text.located()})
    if (data.dataset is None) == (data.population is None):
        both = (data.dataset, data.population)
        remedy = "set data.dataset" if data.dataset is None else "remove the other"
        raise InputError(f"data.dataset, data.population = {both}: must be exactly one of them; {remedy}")
    changed = changed_keys(data)
    making = ("root", "label", "text", "test", "shifts", "per_domain", *ROW_KEYS)
    unused = [key for key in making if key in changed]
    if data.population is None and data.fold is not None:
        raise InputError(f"data.fold = {data.fold}: must stand with data.population; set partition.fold instead")
    if data.validation is not None and data.fold is None:
        raise InputError(f"data.validation = {data.validation}: must stand with data.fold; set data.fold")
    if data.population is not None and unused:
        raise InputError(
            f"data.{unused[0]} with data.population: must be left out, because the clients already exist; remove it"
        )
    if data.test == "":
        raise InputError('data.test = "": must be a data set or a share of the rows; for example, set data.test = 0.2')
    _check_preparation(data)
    return data.located()


def _columns_of(raw: Mapping[str, Any]) -> ColumnsTable:
    """Check `[data.columns]` beside the rest of `[data]`; raise InputError."""
    columns = checked(ColumnsTable, part(raw, "columns", "data"), "data.columns")
    if "text" in raw:
        raise InputError(
            "[data.columns] with [data.text]: must be left out, because columns beside the text are; remove one"
        )
    if columns.drop_first and (columns.encode == "index" or not columns.categories):
        raise InputError(
            "data.columns.drop_first = true without one-hot categories: must have some; set data.columns.categories, "
            'and data.columns.encode = "onehot"'
        )
    if columns.encode != "onehot" and not columns.categories:
        raise InputError(
            f"data.columns.encode = {columns.encode!r} without data.columns.categories: must have some; set them, or "
            "remove the key"
        )
    if columns.fit == "client" and not columns.rules.needs_statistics:
        raise InputError(
            'data.columns.fit = "client" without a statistic: must have one; set data.columns.impute = "median"'
        )
    return columns


def _check_preparation(data: DataTable) -> None:
    if data.own_changes and data.appends:
        raise InputError(
            f'data.augment = {list(data.augment)} with "append": must be without an augmentation of your own, because '
            'copies become part of the population; leave "append" out'
        )
    if data.population is not None and data.appends:
        raise InputError(
            'data.augment with "append" and data.population: must be without "append", because the clients already '
            "exist; name the augmentations alone"
        )
    if data.appends and data.crop_size is not None:
        raise InputError(
            'data.crop_size with data.augment = "append": must be left out, because a copy keeps its image\'s size; '
            "remove it"
        )
    changed = changed_keys(data)
    for key, names in STRENGTHS.items():
        if key in changed and not set(names) & set(data.augment):
            raise InputError(
                f'data.{key} = {getattr(data, key)}: must stand with data.augment = ["{names[0]}"]; add it'
            )
    if data.standardise == "client" and "colour-jitter" in data.augment and not data.appends:
        raise InputError(
            'data.standardise = "client" with data.augment = ["colour-jitter"]: must be "global" or "none", because '
            'colours change before standardisation; set data.standardise = "global"'
        )


def _pair(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    return (size, size) if isinstance(size, int) else size


def _absolute(key: str, *parts: str) -> str:
    return str(absolute(f"data.{key}", *parts))
