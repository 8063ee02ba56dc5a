"""Conclusion of a study: summary, tables and report from the output files of its trials."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.disk import write_whole
from partitioning.common.text import markdown, printable
from raysim.plots.charts import figure, save_figure
from raysim.plots.style import strokes_of
from raysim.report.tables import ResultTable
from raysim.report.templates import save
from raysim.studies import page
from raysim.studies.read import Findings, read_findings
from raysim.studies.statistics import ResultRow, rows_of
from raysim.studies.tables import contests, details, differences, latex_table, markdown_table, means
from raysim.studies.words import caption, caption_of_contests, caption_of_means

SUMMARY = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "algorithm", "point", "metric")),
        ("n", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "std")),
        *((name, pa.int64()) for name in page.STATUSES),
        ("baseline", pa.string()),
        *((name, pa.int64()) for name in ("pairs", "unpaired")),
        *((name, pa.float64()) for name in ("difference", "relative_percent")),
        ("pairs_differing", pa.int64()),
        *((name, pa.float64()) for name in ("p", "p_least", "p_holm")),
        ("significant", pa.bool_()),
        ("method", pa.string()),
    ]
)
"""One row for each data set and algorithm. Comparisons are null for the baseline; `p` is null if no pair differs."""


FORMS: tuple[Literal["pdf", "svg"], ...] = ("pdf", "svg")
"""Forms of the files of curves: for a paper, and for a page."""

TitledTable = tuple[ResultTable, str, str]
"""Table, its caption, and its name in LaTeX."""


def conclude(folder: Path, out: Path | None = None, lead: str = "") -> Path:
    """Write `summary.parquet`, the tables, the curves and the report of a study, finished or not; return the report.

    The tables are `table.md` and `table.tex`; the curves of each data set are `curves-NAME.pdf` and `.svg`.

    Args:
        folder: folder of the study, with `study.toml`, `trials.parquet` and, for curves, `trials/`.
        out: file of the report; default `report.html` in the folder.
        lead: markup that stands before the results.

    Raises:
        InputError: the folder is not that of a study, no trial has ended, or a file is damaged.
    """
    study = read_findings(folder)
    rows = rows_of(study)
    tables = _tables(study, rows)
    with write_whole(folder / "summary.parquet") as aside:
        pq.write_table(pa.Table.from_pylist([_record(study, row) for row in rows], SUMMARY), aside)
    for name, text in (("table.md", _markdown(study, rows, tables)), ("table.tex", _latex(study, rows, tables))):
        with write_whole(folder / name) as aside:
            aside.write_text(text, encoding="utf-8")
    curves = list(page.curves_of(study))
    for _, dataset, panels in curves:
        drawing = figure(panels, strokes_of(study.algorithms))
        for form in FORMS:
            with write_whole(folder / f"curves-{re.sub('[^A-Za-z0-9._-]+', '-', dataset)}.{form}") as aside:
                save_figure(drawing, aside, form)
            drawing.set_layout_engine("none")  # the other form has the same places
    return save(page.render(study, rows, curves, lead), out or folder / "report.html")


def _record(study: Findings, row: ResultRow) -> dict[str, object]:
    own: dict[str, object] = {
        "dataset": row.dataset,
        "algorithm": row.algorithm,
        "point": row.point,
        "metric": study.metric,
        "n": row.n,
        "mean": row.mean,
        "std": row.std,
        **{status: row.statuses.get(status, 0) for status in page.STATUSES},
        "baseline": study.baseline,
    }
    if (each := row.difference) is None:
        return own
    return own | {
        "pairs": each.pairs,
        "unpaired": each.unpaired,
        "difference": each.mean if each.pairs else None,
        "relative_percent": each.relative,
        "pairs_differing": each.test.differing,
        "p": each.test.p,
        "p_least": each.test.p_least,
        "p_holm": each.p_holm,
        "significant": each.significant,
        "method": each.test.method,
    }


def _tables(study: Findings, rows: Sequence[ResultRow]) -> list[TitledTable]:
    """Return the tables over data sets."""
    found = [
        (means(study, rows), caption_of_means(study, rows), "means"),
        (differences(study, rows), caption(study, rows), "differences"),
    ]
    if len(study.algorithms) > 1:
        found.append((contests(study), caption_of_contests(study), "contests"))
    return found


def _markdown(study: Findings, rows: Sequence[ResultRow], tables: Sequence[TitledTable]) -> str:
    parts = [f"# {markdown(study.name)}"]
    for table, text, name in tables:
        parts += [markdown_table(table), markdown(text)]
        if name == "differences":
            parts.append("\n".join(f"- {markdown(sentence)}" for sentence in page.sentences(study, rows)))
    parts.append(markdown_table(details(study, rows)))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _latex(study: Findings, rows: Sequence[ResultRow], tables: Sequence[TitledTable]) -> str:
    # The notes are comments: authors place them in their own text.
    lines = ["Needs \\usepackage{booktabs}.", *page.sentences(study, rows)]
    head = "".join(f"% {printable(line)}\n" for line in lines)
    first = [latex_table(table, text, f"tab:{name}") for table, text, name in tables]
    others = [
        latex_table(
            details(study, [row for row in rows if row.dataset == name]),
            f"Mean ± standard deviation over seeds and test folds, and the chosen hyper-parameters, on {name}.",
            f"tab:details-{number}",
        )
        for number, name in enumerate(study.datasets, 1)
    ]
    return "\n".join([head, *first, *others])
