"""Every code block of the pages that can be run is run; the others carry the reason.

The blocks of a page run in their order in one new folder. A block with a title is a file: it is written there. TOML is
checked by the typed models, Python is executed, and `raysim` and `partitioning` commands run in this process, without
Ray, for two rounds unless the page shows output. Text is the output of the Python block before it.
`<!-- not run: REASON -->` above a block leaves it out.
"""

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
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
from tests.kit.pages import PAGES, SHORT, CodeBlock, blocks, name

RUN = ("raysim", "partitioning")
"""Commands that blocks may hold."""
WITH_BLOCKS = [page for page in PAGES if any(block.language for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    shows_output = any(block.language == "text" for block in blocks(page))
    before, scope = set(sys.modules), {"__name__": "page", "shortened": not shows_output}
    try:
        for block in blocks(page):
            if block.reason is None:
                RUNNERS[block.language](block, scope)
    finally:
        for own in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[own], "__file__", "")):
                del sys.modules[own]


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


def check_output(block: CodeBlock, scope: dict[str, Any]) -> None:
    """A block of text is what the Python block before it prints."""
    assert scope.pop("printed") == block.text


def run_shell(block: CodeBlock, scope: dict[str, Any]) -> None:
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        words = shlex.split(line, comments=True)
        if words[:4] == ["pip", "install", "-q", "uv"]:  # the two commands of the README: .ci/run runs them
            words = words[words.index("run") + 1 :]
            if words[0] == "pytest":
                continue
        assert words[0] in RUN, f"{line}: mark the block by <!-- not run: REASON -->"
        run_words(words, scope["shortened"])


def run_words(words: list[str], shortened: bool = True) -> None:
    group: Any = commands.cli if words[0] == "raysim" else partitioning_commands._group
    arguments = words[1:]
    if words[0] == "raysim" and arguments[0] in SHORT:
        arguments += [] if "--inline" in arguments else ["--inline"]
        arguments += SHORT[arguments[0]] if shortened else []
    with pytest.raises(SystemExit) as ended:
        run_command(group, words[0], arguments)
    assert not ended.value.code, words


RUNNERS: dict[str, Callable[[CodeBlock, dict[str, Any]], None]] = {
    "toml": run_toml,
    "python": run_python,
    "sh": run_shell,
    "text": check_output,
}
