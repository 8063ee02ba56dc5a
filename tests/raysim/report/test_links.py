"""Links between clients on the page: a circle of few, a matrix of many, and the bytes of all."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.common.names import EDGES
from raysim.report.page import write_report
from tests.kit.folders import told, write_run
from tests.kit.outline import Outline

pytestmark = pytest.mark.usefixtures("drawn")


def linked(folder: Path, clients: int, hops: int) -> None:
    """Write the links of an algorithm whose clients send to the next ones, the nearest most."""
    ends = [(client, (client + hop) % clients, hop) for client in range(clients) for hop in range(1, hops + 1)]
    senders, receivers, distance = np.array(ends).T
    columns = {"from": 3 * senders, "to": 3 * receivers, "messages": distance, "bytes": 1000 * (hops + 1 - distance)}
    pq.write_table(pa.table(columns), folder / EDGES)


@pytest.mark.parametrize(("clients", "hops", "is_matrix"), [(12, 2, False), (90, 40, True)])
def test_links_are_drawn(clients: int, hops: int, is_matrix: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ["fedavg", "radfed"], every=0)
    linked(run / "radfed", clients, hops)
    told(run / "radfed", options=["graph ring of 12 clients: each sends to 2 others"])
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    text, begin = Outline(page).text, page.index("<h2>Links</h2>")
    section = page[begin : page.index("</section>", begin)]
    assert f"radfed: {clients} clients, {clients * hops:,} links" in section
    assert ("<image" in section) == is_matrix
    assert len(re.findall(r"<figure", section)) == 2 and "Per cent of links, largest first" in section
    if is_matrix:  # both axes have all numbers, although the vertical one runs downwards
        assert all(section.count(f">{client}</text>") >= 2 for client in range(0, clients + 1, 10))
    else:  # each client's own number stands at its point
        assert all(f">{3 * client}</text>" in section for client in range(clients))
    assert "radfed: graph ring of 12 clients: each sends to 2 others." in text


def test_a_run_with_a_server_has_no_links(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "run", every=0)], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Links</h2>" not in page
