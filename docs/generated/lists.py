"""Lists of names with a line on each."""

from __future__ import annotations

from docs.generated.text import Names, heading, joined
from raysim.config.read import recipes
from raysim.config.reference import sentence
from raysim.data.catalogue import DATASET_FORMS, DATASETS


def datasets(page: str, names: Names) -> str:
    """Return the data sets by name, and the forms of a name, with a line on each."""
    known = {**{name: each.description for name, each in DATASETS.items()}, **DATASET_FORMS}
    return "\n".join(f"- `{name}`: {names.text(sentence(text), page)}" for name, text in known.items()) + "\n"


def recipe_list(page: str, names: Names) -> str:
    """Return the recipes that come with raysim and the first line of each."""
    parts = []
    for name, path in sorted(recipes().items()):
        line = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        parts += [heading(3, f"`{name}`", name), names.text(sentence(line), page)]
    return joined(*parts)
