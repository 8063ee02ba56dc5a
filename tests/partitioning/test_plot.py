import io

import numpy as np
import pytest

from partitioning.plot import heatmap


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (5, 10), (1200, 10), (30, 300)])
def test_a_heatmap_of_any_size_can_be_drawn(clients, classes):
    counts = np.random.default_rng(0).integers(0, 50, (clients, classes))
    figure = heatmap(counts, [f"class {c}" for c in range(classes)])
    axes = figure.axes[0]
    assert f"{counts.sum():,} samples on {clients:,} clients" in axes.get_title()
    assert len(axes.get_xticks()) <= 25
    assert len(figure.axes) == 2  # the colour bar
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    assert picture.getvalue().startswith(b"\x89PNG")


def test_the_title_may_be_given():
    assert heatmap(np.array([[0]]), ["a"], title="mine").axes[0].get_title() == "mine"
