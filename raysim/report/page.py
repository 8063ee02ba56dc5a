"""The page: what the template is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raysim.report import curves, tables
from raysim.report.breakdown import breakdown
from raysim.report.clients import Clients, describe
from raysim.report.read import Run, read_runs
from raysim.report.templates import save, template
from raysim.store.mirror import local_folders


def write_report(runs: Sequence[str | Path], out: Path) -> Path:
    """Write one HTML page about the runs, side by side, to `out`, and return `out`.

    The page needs no network and no other file, and the same runs give the same bytes. It appears whole or
    not at all: a page that was there before stays until the new one is complete.

    Args:
        runs: folders that `raysim run` wrote, or their URIs, in the order of the page.
        out: the page's file; folders above it are made.

    Raises:
        InputError: no run is given, a folder is no run or holds a damaged file, or `out` is a folder.
    """
    with local_folders(runs) as folders:
        page = render(read_runs(folders))
    return save(page, out)


def render(runs: Sequence[Run]) -> str:
    """The page's markup."""
    series = curves.series_of(runs)
    results = [each.result for each in series]
    return template("page.html.j2").render(
        title=", ".join(run.name for run in runs),
        several=len(runs) > 1,
        runs=[_describe(run) for run in runs],
        series=series,
        headline=tables.headline(results),
        metrics=tables.every_metric(results),
        evaluated=tables.evaluated(results),
        best=tables.best_values(results),
        goals=tables.goals(results),
        endings=tables.endings(results, [each.label for each in series]),
        evaluation=list(curves.evaluation(series)),
        measures=list(curves.measures(series)),
        verdicts=[(each.label, text) for each in series if (text := tables.concordance(each.result))],
        training=list(curves.training(series)),
        stages=breakdown(series),
        aggregates_marked=any(each.aggregates.size for each in series),
        populations=list(_populations(runs)),
        glossary=tables.GLOSSARY,
    )


def _populations(runs: Sequence[Run]) -> Iterator[Clients]:
    """Each population once, however many of the runs share it."""
    known = [(run.name, run.population) for run in runs if run.population is not None]
    distinct = {population.fingerprint: population for _, population in known}
    for index, (fingerprint, population) in enumerate(distinct.items()):
        sharing = [name for name, each in known if each.fingerprint == fingerprint]
        yield describe(population, sharing, f"population{index}")


def _describe(run: Run) -> Mapping[str, Any]:
    """What the page says about a run beside its numbers."""
    return {
        "name": run.name,
        "facts": {name: value or tables.ABSENT for name, value in _facts(run).items()},
        "config": run.config_text.strip(),
        "unreached": run.unreached,
        "without_population": run.population is None,
        "algorithms": [
            (each.name, tables.indented(str(each.summary["algorithm"])))
            for each in run.results
            if "algorithm" in each.summary
        ],
        "fingerprint": next((found for each in run.results if (found := each.summary.get("fingerprint"))), {}),
    }


def _facts(run: Run) -> dict[str, str]:
    """The experiment in a line; an empty text for what neither the population nor the configuration says."""
    data, partition = (run.config.get(table, {}) for table in ("data", "partition"))
    dataset, scheme, clients = data.get("dataset"), partition.get("scheme"), partition.get("clients")
    if run.population is not None:
        manifest = run.population.manifest
        dataset, scheme, clients = manifest.dataset, manifest.scheme, len(run.population.sizes)
    return {
        "Data": str(dataset or ""),
        "Partition": str(scheme or ""),
        "Clients": "" if clients is None else f"{clients:,}",
        "Model": ", ".join(dict.fromkeys(models_of(run.config))),
        "Rounds": str(run.config.get("rounds", "")) or _epochs(run.config.get("epochs")),
        "Seed": str(run.config.get("seed", "")),
    }


def models_of(config: Mapping[str, Any]) -> Iterator[str]:
    """Each algorithm's model in words: its own, or the common one."""
    common, several = config.get("model", {}), config.get("algorithm", {})
    for table in several if isinstance(several, list) else [several]:
        model = table.get("model", common)
        yield " ".join(str(model[key]) for key in ("name", "hidden") if model.get(key))


def _epochs(epochs: float | None) -> str:
    return "" if epochs is None else f"of {epochs:g} epochs"
