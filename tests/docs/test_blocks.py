"""Every code block of the pages that can be run is run; the others carry the reason.

The blocks of a page run in their order in one new folder. A block with a title is a file: it is written there. TOML is
checked by the typed models, Python is executed, and `raysim` and `partitioning` commands run in this process, without
Ray. Text is the output of the block before it, exactly, apart from measured numbers, whose digits depend on the
processor (see `differences`). The runs of a page in `LONG`, or of one that shows no output, have two rounds, and of the
page's output only the words are compared, and pictures stay empty; `slow` runs the pages in `LONG` as they are.
`<!-- not run: REASON -->` above a block leaves it out.
"""

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from partitioning.cli import commands as partitioning_commands
from partitioning.cli.exit_status import run_command
from raysim.cli import commands
from raysim.config.experiment import Experiment
from raysim.studies.file import Study, completed
from tests.kit.pages import DOCS, PAGES, ROOT, CodeBlock, blocks, cut, name, text_of, without_ray

RUN = ("raysim", "partitioning")
"""Commands that blocks may hold."""
WITH_BLOCKS = [page for page in PAGES if any(block.language for block in blocks(page))]


LONG = {
    "README.md",
    "docs/coming-from-flower.md",
    "docs/explanation/edges-and-sizes.md",
    "docs/explanation/topologies.md",
    "docs/how-to/compression.md",
    "docs/how-to/devices.md",
    "docs/how-to/evaluate.md",
    "docs/how-to/models.md",
    "docs/how-to/own-training.md",
    "docs/how-to/personal-models.md",
    "docs/how-to/privacy.md",
    "docs/how-to/real-tables.md",
    "docs/how-to/robust.md",
    "docs/how-to/selection.md",
    "docs/how-to/server.md",
    "docs/how-to/text.md",
    "docs/how-to/training.md",
    "docs/index.md",
    "docs/tutorials/first-run.md",
    "docs/tutorials/study.md",
    "docs/tutorials/your-algorithm.md",
    "docs/tutorials/your-data.md",
}
"""Pages with a run that takes more than some two seconds."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder to work in, and forget the modules that a page leaves there."""
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield tmp_path
    for own in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[own], "__file__", "")):
            del sys.modules[own]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name)
def test_blocks_run(page: Path) -> None:
    shows_output = any(block.language == "text" and block.reason is None for block in blocks(page))
    if shows_output and name(page) not in LONG:
        run_blocks(page, str, str)
    else:
        run_blocks(page, cut, words)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", sorted(LONG))
def test_blocks_run_at_full_length(page: str) -> None:
    run_blocks(ROOT / page, str, str)


def run_blocks(page: Path, changed: Callable[[str], str], compared: Callable[[str], str]) -> None:
    """Run the blocks of a page.

    Args:
        page: page.
        changed: returns the text of a block to run.
        compared: returns the part of an output that must be as the page shows it.
    """
    scope = {"__name__": "page", "compared": compared}
    for block in blocks(page):
        if block.reason is None:
            RUNNERS[block.language](
                block if block.language == "text" else replace(block, text=changed(block.text)), scope
            )


def words(text: str) -> str:
    """Return an output without its numbers."""
    return re.sub(rf"{NUMBER.pattern}(?: [kMG]?B\b)?", "#", text)


def test_the_readme_shows_the_run_of_the_front_page() -> None:
    (file, *_), (shown, *_) = (
        [b for b in blocks(ROOT / "README.md") if b.language == kind] for kind in ("toml", "text")
    )
    front = list(blocks(DOCS / "index.md"))
    assert file in front and shown.text in [block.text for block in front]


def run_toml(block: CodeBlock, _: dict[str, Any]) -> None:
    if block.title:
        Path(block.title).write_text(block.text)
    raw = tomllib.loads(block.text)
    if "study" in raw:
        Study.of(completed(raw))
    else:
        Experiment.of({"data": {"dataset": "digits"}} | raw, [Path.cwd()])


def run_python(block: CodeBlock, scope: dict[str, Any]) -> None:
    if block.title:
        Path(block.title).write_text(block.text)
    else:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(block.text, "page", "exec"), scope)
        scope["printed"] = printed.getvalue()
        scope["measures"] = "accuracy" in block.text or "auc" in block.text


def check_output(block: CodeBlock, scope: dict[str, Any]) -> None:
    """A block of text is what the block before it prints."""
    compared = scope["compared"]
    if "printed" in scope and not scope["measures"]:
        assert compared(scope.pop("printed")) == compared(block.text)
    else:
        assert differences(compared(block.text), compared(scope.pop("printed", None) or scope["told"])) == []


def run_shell(block: CodeBlock, scope: dict[str, Any]) -> None:
    scope.pop("printed", None)
    with redirect_stdout(StringIO()) as told:
        run_lines(block.text)
    scope["told"] = told.getvalue()


def run_lines(text: str) -> None:
    for line in re.sub(r"\\\n\s*", " ", without_ray(text)).splitlines():
        command = shlex.split(line, comments=True)
        if command[:4] == ["pip", "install", "-q", "uv"]:  # the two commands of the README: .ci/run runs them
            command = command[command.index("run") + 1 :]
            if command[0] == "pytest":
                continue
        assert command[0] in RUN, f"{line}: mark the block by <!-- not run: REASON -->"
        group: Any = commands.cli if command[0] == "raysim" else partitioning_commands._group
        with pytest.raises(SystemExit) as ended:
            run_command(group, command[0], command[1:])
        assert not ended.value.code, line


def test_the_page_of_the_partitioner_needs_what_it_installs() -> None:
    page = DOCS / "how-to" / "partition.md"
    installed = {"partitioning"} | set(re.search(r"&& pip install (.+)$", text_of(page), re.MULTILINE)[1].split())  # type: ignore[index]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "partitioning").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    needed = {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, ""}
    assert "numpy" in needed
    assert needed - {"torch", "datasets"} <= installed, "these two are read if the user has them"
    ran = [block for block in blocks(page) if block.reason is None]
    imported = {name for block in ran for name in re.findall(r"^(?:import|from) (\w+)", block.text, re.MULTILINE)}
    assert {"numpy", "pyarrow"} < imported <= installed
    assert all(
        line.startswith("partitioning ") for block in ran if block.language == "sh" for line in block.text.splitlines()
    )


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NEAR = 0.03
"""Difference of a measured number between kinds of processors that a page does not show wrongly."""


def differences(shown: str, printed: str) -> list[str]:
    """Return the lines of a page's output that a command does not print, in this order.

    Measured numbers, those with a point, may differ by `NEAR`, small ones by half at most, and those of a line on
    seconds by anything. A line `...` stands for lines that the page leaves out, and a line that ends in ` ...` for a
    longer one.
    """
    rest, wrong, may_skip = printed.splitlines(), [], False
    for line in shown.splitlines():
        if line.strip() == "...":
            may_skip = True
            continue
        found = next((place for place, other in enumerate(rest) if alike(line, other)), None)
        if found is None or (found and not may_skip):
            wrong.append(f"{line!r}, printed: {rest[:1]}")
        rest, may_skip = rest[(found or 0) + 1 :], False
    return wrong + ([] if may_skip else [f"not shown: {line!r}" for line in rest if line.strip()])


def alike(line: str, printed: str) -> bool:
    if line.endswith(" ..."):
        line, printed = line.removesuffix(" ..."), printed[: len(line) - 4]
    plain = [re.sub(r"([ ━─])\1+", r"\1", NUMBER.sub("#", each)).strip() for each in (line, printed)]
    pairs = zip(NUMBER.findall(line), NUMBER.findall(printed), strict=False)
    return plain[0] == plain[1] and all(
        one == two or ("." in one and ("seconds" in line or is_near(one, two))) for one, two in pairs
    )


def is_near(one: str, two: str) -> bool:
    """Return whether two measured numbers differ by at most `NEAR`, and small ones by half at most."""
    a, b = (float(each.replace(",", "")) for each in (one, two))
    return abs(a - b) <= min(NEAR, max(abs(a), abs(b)) / 2)


def test_output_that_differs_is_found() -> None:
    assert (
        differences(
            "a 0.52\n...\nseconds 1.5\nlong ...\n", "a 0.51\nb\nseconds 9\nlonger\n".replace("longer", "long er")
        )
        == []
    )
    assert differences("seconds 1.5 60\n", "seconds 2.5 7\n") and differences("epsilon 0.02\n", "epsilon 0.0004\n")
    assert differences("a 0.52\n", "a 0.42\n") and differences("a 2\n", "a 3\n") and differences("a\n", "a\nb\n")
    assert differences("a\nc\n", "a\nb\nc\n") and differences("a\nb\n", "a\n") and differences("b\na\n", "a\nb\n")


RUNNERS: dict[str, Callable[[CodeBlock, dict[str, Any]], None]] = {
    "toml": run_toml,
    "python": run_python,
    "sh": run_shell,
    "text": check_output,
}
