"""Options of the matrix, alone and in pairs: each run, amid its rounds, is resumed to the same bytes.

By default each option is resumed once, in a pair if one of the pairs below has it. Slow are the same option alone, the
pairs in which at most one option leaves a state in the checkpoint, and options without a state or draws of their own.
"""

from pathlib import Path

import pytest

from tests.matrix.configurations import OPTIONS, PAIRS
from tests.matrix.executions import resumed

PAIRED = frozenset(
    (
        *("adaptive privacy and fedadam", "deadline and feedback", "stale ditto", "oort with stale updates"),
        *("stale fedbn of vanishing clients", "over-selection of vanishing clients", "radfed drops"),
        *("radfed compressed", "radfed of vanishing clients", "radfed by an own selection", "radfedi inactive"),
        *("low-rank radfed", "twins of radfed", "feedback and downlink", "fedadam with two stages down"),
        *("candidates and fedbn", "fedasync of vanishing clients", "fedasync compressed"),
        *("fedbuff of vanishing clients", "fedbs compressed", "scaffold compressed", "fedmmb with dropout"),
        *("edges with devices", "edges and fedbn", "edges compressed", "levels compressed"),
        *("gossip of received models", "directed gossip in batches", "gossip by the best", "krum under attack"),
        *("median under collusion", "multi-krum and fedbn under collusion"),
        *("geometric median and fedadam under collusion", "fedbn by sign"),
    )
)
"""Pairs that the default suite resumes: both have a state in the checkpoint, or they stand for their options alone."""

WITHIN = frozenset(
    (
        *("power-of-choice", "inactive", "poisson", "joins", "devices", "oort", "own selection", "over-selection"),
        *("deadline", "stale", "absence", "attack", "little-is-enough", "median", "krum", "multi-krum"),
        *("geometric-median", "top-k", "feedback", "random-k", "quantise", "sign", "downlink", "privacy"),
        *("adaptive privacy", "twins", "dropout", "finetune", "by the best", "low-rank"),
        *("vectorised", "fused", "augmented"),
    )
)
"""Options that the default suite resumes within another run: a pair's, one with user code, or a tuned algorithm's."""

PLAIN = frozenset(("label-flip", "inner-product", "trimmed-mean", "momentum", "adam", "one logit"))
"""Options without a state or draws of their own: a resume has nothing of them to lose."""

BY_DEFAULT = (*(name for name in OPTIONS if name not in WITHIN | PLAIN), *sorted(PAIRED))
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in {**OPTIONS, **PAIRS} if name not in BY_DEFAULT]


@pytest.mark.parametrize("name", [*BY_DEFAULT, *OTHERS])
def test_a_resumed_run_has_the_bytes_of_another(name: str, tmp_path: Path) -> None:
    assert resumed(name, tmp_path) == []
