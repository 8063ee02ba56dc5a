"""Each option of the matrix, and each pair, in this process, ended between two rounds and resumed.

Slow are the pairs in which at most one option leaves a state in the checkpoint: its run alone resumes that.
"""

from pathlib import Path

import pytest

from tests.matrix.configurations import OPTIONS, PAIRS
from tests.matrix.executions import resumed

RESUMED = frozenset(
    (
        "adaptive privacy and fedadam",
        "deadline and feedback",
        "stale ditto",
        "oort with stale updates",
        "stale fedbn of vanishing clients",
        "over-selection of vanishing clients",
        "radfed drops",
        "radfed compressed",
        "radfed of vanishing clients",
        "radfed by an own selection",
        "radfedi inactive",
        "low-rank radfed",
        "twins of radfed",
        "feedback and downlink",
        "fedadam with two stages down",
        "candidates and fedbn",
        "fedasync of vanishing clients",
        "fedasync compressed",
        "fedbuff of vanishing clients",
        "fedbs compressed",
        "scaffold compressed",
        "fedmmb with dropout",
        "edges with devices",
        "edges and fedbn",
        "edges compressed",
        "levels compressed",
        "gossip of received models",
        "directed gossip in batches",
        "gossip by the best",
    )
)
"""Pairs that the default suite resumes: both options have a state in the checkpoint, or one waits on the other's."""

OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in PAIRS if name not in RESUMED]


@pytest.mark.parametrize("name", [*OPTIONS, *sorted(RESUMED), *OTHERS])
def test_a_resumed_run_has_the_bytes_of_another(name: str, tmp_path: Path) -> None:
    assert resumed(name, tmp_path) == []
