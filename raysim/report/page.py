"""The report's page."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raysim.config.check import flat
from raysim.config.read import algorithm_tables
from raysim.plots.style import strokes_of_runs
from raysim.report import commands, curves, each_client, tables
from raysim.report.clients import describe
from raysim.report.read import RunOutput, algorithms_of, read_runs
from raysim.report.structure import links, structure
from raysim.report.tables import ResultTable, TableColumn
from raysim.report.templates import save, template
from raysim.report.words import ABSENT, used_terms
from raysim.store.mirror import local_folders

DEFAULT_TIME = re.compile(r"-\d{8}-\d{6}(-\d+)?$")
"""Time at the end of a folder that `raysim run` names; the title of a single run leaves it out."""


def write_report(runs: Sequence[str | Path], out: Path) -> Path:
    """Write one HTML page about the runs, side by side, to `out`, and return `out`.

    The page needs no network and no other file, and its bytes depend on the runs alone. It appears whole or not at
    all: an earlier page stays until the new one is complete.

    Args:
        runs: folders that `raysim run` wrote, or their URIs, in the order of the page.
        out: file of the page; missing folders above it are made.

    Raises:
        InputError: no run is given, a folder holds no run or a damaged file, or `out` is a folder.
    """
    with local_folders(runs) as folders:
        page = render(read_runs(folders))
    return save(page, out)


def render(runs: Sequence[RunOutput]) -> str:
    """Return the page's markup."""
    results = [each for run in runs for each in run.results]
    strokes = strokes_of_runs([{each.label: each.name for each in run.results} for run in runs])
    used = {name for each in results for name in each.measured if each.total(name)}
    facts = [_facts(run) for run in runs]
    headline, every_metric = tables.headline(results), tables.every_metric(results)
    sections = {
        "metrics": every_metric,
        "best": tables.best_values(results),
        "kinds": tables.kinds(results),
        "each_client": each_client.describe(runs, strokes),
        "evaluation": list(curves.evaluation(results, strokes)),
        "by_costs": list(curves.by_costs(results, strokes)),
        "measures": list(curves.measures(results, strokes)),
        "links": list(links(results, strokes)),
        "training": list(curves.training(results, strokes)),
        "structure": list(structure(results, strokes)),
        "stages": curves.breakdown(results),
        "commands": commands.breakdown(runs),
    }
    return template("page.html.j2").render(
        title=", ".join(run.name for run in runs) if len(runs) > 1 else DEFAULT_TIME.sub("", runs[0].name),
        several=len(runs) > 1,
        facts={name: value for name, value in facts[0].items() if all(each[name] == value for each in facts) and value},
        differences=differences(runs) if len(runs) > 1 else None,
        runs=[_describe(run) for run in runs],
        strokes=strokes,
        headline=headline,
        has_gaps=any(table.has_gaps for table in (headline, *(table for _, table in every_metric))),
        evaluated=tables.evaluated(results),
        goals=tables.goals(results),
        endings=tables.endings(results),
        verdicts=[(each.label, text) for each in results if (text := tables.concordance(each))],
        has_marks=any(each.aggregations.size for each in results),
        populations=list(_populations(runs)),
        glossary=used_terms(used, sections["stages"] is not None, sections["commands"] is not None),
        **sections,
    )


def differences(runs: Sequence[RunOutput]) -> ResultTable | None:
    """Return a row for each run with its values of the keys whose resolved values differ; None if the runs are equal.

    A key of an algorithm is compared among the runs that have the algorithm; algorithms with equal values share a
    column.
    """
    columns = dict(_differing([_texts(run.config, "algorithm") for run in runs]))
    tables = [algorithms_of(run.config) for run in runs]
    names = list(dict.fromkeys(name for own in tables for name in own))
    if len({tuple(own) for own in tables}) > 1:
        columns["algorithm"] = [", ".join(own) for own in tables]
    owners: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in names:
        for key, texts in _differing([_texts(own[name]) if name in own else None for own in tables]):
            owners.setdefault((key, tuple(texts)), []).append(name)
    for (key, values), own_names in owners.items():
        columns[key if own_names == names else f"{', '.join(own_names)}: {key}"] = list(values)
    if not columns:
        return None
    return ResultTable(
        [TableColumn(key, texts) for key, texts in columns.items()], (TableColumn("Run", [run.name for run in runs]),)
    )


def _texts(table: Mapping[str, Any], leave_out: str = "") -> dict[str, str]:
    every = {key: value for key, value in flat(table) if key != leave_out}
    return {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in every.items()}


def _differing(every: Sequence[Mapping[str, str] | None]) -> Iterator[tuple[str, list[str]]]:
    """Yield each key with different texts, and the text of each run; a run without the table does not count."""
    known = [each for each in every if each is not None]
    for key in dict.fromkeys(key for each in known for key in each):
        if len({each.get(key) for each in known}) > 1:
            yield key, [ABSENT if each is None else each.get(key, ABSENT) for each in every]


def _populations(runs: Sequence[RunOutput]) -> Iterator[Mapping[str, Any]]:
    """Yield each population once, with the runs that share it."""
    known = [(run.name, run.population) for run in runs if run.population is not None]
    distinct = {population.fingerprint: population for _, population in known}
    for index, (fingerprint, population) in enumerate(distinct.items()):
        sharing = [name for name, each in known if each.fingerprint == fingerprint]
        yield describe(population, sharing, f"population{index}")


def _describe(run: RunOutput) -> Mapping[str, Any]:
    return {
        "name": run.name,
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


def _facts(run: RunOutput) -> dict[str, str]:
    """Return the experiment's main values; empty texts if neither population nor configuration has them."""
    data, partition = (run.config.get(table, {}) for table in ("data", "partition"))
    dataset, scheme, clients = data.get("dataset"), partition.get("scheme"), partition.get("clients")
    if run.population is not None:
        manifest = run.population.manifest
        dataset, scheme, clients = manifest.dataset, manifest.scheme, len(run.population.sizes)
    epochs = run.config.get("epochs")
    return {
        "Data": str(dataset or ""),
        "Partition": str(scheme or ""),
        "Clients": "" if clients is None else f"{clients:,}",
        "Model": ", ".join(dict.fromkeys(models_of(run.config))),
        "Rounds": str(run.config.get("rounds", "")) or ("" if epochs is None else f"of {epochs:g} epochs"),
        "Seed": str(run.config.get("seed", "")),
    }


def models_of(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield each algorithm's model in words: its own, or the common one."""
    for table in algorithm_tables(config):
        model = table.get("model", config.get("model", {}))
        yield " ".join(str(model[key]) for key in ("name", "hidden") if model.get(key))
