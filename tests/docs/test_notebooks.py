"""The tutorials as notebooks: equal to the pages, and run by a kernel (`slow`)."""

import os
import sys
from pathlib import Path

import pytest

from docs.tutorials.notebooks import TUTORIALS, notebook
from tests.kit.pages import DOCS, cut, without_ray


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_notebook_is_that_of_its_page(name: str) -> None:
    page, written = (DOCS / "tutorials" / f"{name}.{kind}" for kind in ("md", "ipynb"))
    assert written.read_text(encoding="utf-8") == notebook(page.read_text(encoding="utf-8")), (
        "run `uv run python -m docs.tutorials.notebooks`"
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the kernel's own
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    cells = nbformat.read(DOCS / "tutorials" / f"{name}.ipynb", as_version=4)
    for cell in cells.cells:
        cell.source = cut(without_ray(cell.source))
    done = nbclient.NotebookClient(cells, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(each.execution_count for each in done.cells if each.cell_type == "code")
