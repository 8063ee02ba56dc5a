"""Pages from templates, written to disk as a whole."""

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from partitioning import InputError
from partitioning.common.disk import write_whole
from partitioning.common.text import printable_lines, word
from raysim.plots.style import COLOURS, DARK_COLOURS


@cache
def template(name: str, package: str = "raysim.report") -> jinja2.Template:
    """Return a package's template, which may extend and import those of `raysim.report`."""
    packages = dict.fromkeys([package, "raysim.report"])
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each, package_path="") for each in packages]),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["line_colours"] = list(zip(COLOURS, DARK_COLOURS, strict=True))
    environment.filters["word"] = word
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Make a text printable; charts and what macros return are markup."""
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def save(page: str, out: Path) -> Path:
    """Write a page whole or not at all: an earlier page stays until the new one is complete.

    Raises:
        InputError: `out` is a folder, a device or a pipe, or an existing file that is no page.
    """
    if out.exists() and not out.is_file():  # a rename would put the page in the place of a device
        raise InputError(f"{out} is not a regular file, and the report is one file; name a file")
    if out.exists() and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out} exists and does not end in .html: must be a page or a new file; name another")
    out.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(out) as aside:
        aside.write_text(page, encoding="utf-8")
    return out
