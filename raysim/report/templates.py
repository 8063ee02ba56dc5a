"""Pages from templates, written to disk as a whole."""

from __future__ import annotations

from pathlib import Path

import jinja2

from partitioning import InputError
from partitioning.common.disk import write_whole


def template(name: str, package: str = "raysim.report") -> jinja2.Template:
    """Return a package's template, which may extend and import those of `raysim.report`."""
    packages = dict.fromkeys([package, "raysim.report"])
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each, package_path="") for each in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def save(page: str, out: Path) -> Path:
    """Write a page whole or not at all: an earlier page stays until the new one is complete.

    Raises:
        InputError: `out` is a folder.
    """
    if out.is_dir():
        raise InputError(f"{out} is a folder, and the report is one file; name a file in it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(out) as aside:
        aside.write_text(page, encoding="utf-8")
    return out
