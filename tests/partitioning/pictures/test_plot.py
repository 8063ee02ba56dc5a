import io
import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from partitioning import InputError
from partitioning.pictures.panels import class_colours
from partitioning.pictures.plot import PANELS, View, draw, heatmap, save

pytestmark = pytest.mark.usefixtures("drawn")


def view(clients, classes=10, *, name="mine", seed=0, features=()):
    random = np.random.default_rng(seed)
    counts = random.negative_binomial(0.3, 0.02, (clients, classes))
    counts[0, 0] += 1
    return View(name, counts, list(range(classes)), {each: random.integers(0, 9, (clients, 4)) for each in features})


def titles(figure):
    return [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]


def png(figure):
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=30)
    return picture.getvalue()


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (1200, 10), (30, 300)])
def test_a_heatmap_of_any_size_can_be_drawn(clients, classes):
    counts = np.random.default_rng(0).integers(0, 50, (clients, classes))
    figure = heatmap(counts, [f"class {c}" for c in range(classes)])
    axes = figure.axes[0]
    assert f"{counts.sum():,} samples on {clients:,} clients" in axes.get_title()
    assert len(axes.get_xticks()) <= 25
    assert len(figure.axes) == 2  # the colour bar
    assert png(figure).startswith(b"\x89PNG")


def test_the_title_may_be_given():
    assert heatmap(np.array([[0]]), ["a"], title="mine").axes[0].get_title() == "mine"


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (3000, 10), (30, 100)])
def test_all_panels_of_any_size_can_be_drawn(clients, classes):
    figure = draw([view(clients, classes, features=["colour"])])
    shown = titles(figure)
    assert shown[0].startswith("mine\n")
    assert f"on {clients:,} clients" in shown[0]
    assert shown[1] == "class shares"
    assert "per client, mean" in shown[2]
    assert shown[3].startswith("colour: category shares, C-score")
    assert png(figure).startswith(b"\x89PNG")


def test_no_label_of_an_axis_lies_on_another():
    for one in (view(100, 100), view(10_000)):
        figure = draw([one])
        canvas = FigureCanvasAgg(figure)  # one renderer: without it, each label would make one of megabytes
        canvas.draw()
        renderer = canvas.get_renderer()
        for axes in figure.axes:
            for labels, start, end in ((axes.get_xticklabels(), "x0", "x1"), (axes.get_yticklabels(), "y0", "y1")):
                boxes = [
                    label.get_window_extent(renderer) for label in labels if label.get_text() and label.get_visible()
                ]
                boxes.sort(key=lambda box: getattr(box, start))
                gaps = [getattr(b, start) - getattr(a, end) for a, b in itertools.pairwise(boxes)]
                assert all(gap > -1 for gap in gaps), (axes.get_title("left"), gaps)


def test_panels_are_chosen_by_name_and_stand_in_their_order():
    figure = draw([view(5)], ["sizes", "bars"])
    first, second = titles(figure)
    assert "per client, mean" in first
    assert second == "class shares"
    assert len(titles(draw([view(5)], ["bars", "bars"]))) == 1
    assert list(PANELS) == ["heatmap", "bars", "sizes", "features"]


def test_a_panel_that_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match=r"panel 'bar' is unknown: choose .* did you mean 'bars'"):
        draw([view(5)], ["bar"])
    with pytest.raises(InputError, match="panel 'features' has nothing to show: choose 'heatmap', 'bars', 'sizes'"):
        draw([view(5)], ["features"])


def test_two_populations_share_their_scales():
    big, small = view(40, name="big", features=["colour"]), view(30, name="small", seed=1)
    big = View("big", big.class_counts * 50, big.classes, big.features)
    grid = [axes for axes in draw([big, small], ["heatmap", "sizes", "features"]).axes if axes.get_title("left")]
    left, right = grid[0].images[0], grid[1].images[0]
    assert (left.norm.vmin, left.norm.vmax) == (right.norm.vmin, right.norm.vmax) == (0, big.class_counts.max())
    assert grid[2].get_ylim() == grid[3].get_ylim()
    assert grid[2].get_xlim() == grid[3].get_xlim()
    assert len(grid) == 5  # the small one has no features


def test_each_population_names_its_own_categories():
    counts, few = np.array([[3, 1], [0, 2]]), np.array([[5, 5, 1], [1, 0, 1]])
    views = [
        View("a", counts, ["x", "y"], {"age": counts}, {"age": ["below 30", "from 30"]}),
        View("b", counts, ["x", "y"], {"age": counts}, {"age": ["below 65", "from 65"]}),
        View("c", counts, ["x", "y"], {"age": few}, {"age": ["below 1", "1 to 2", "from 2"]}),
        View("d", counts, ["x", "y"], {"age": counts}),
    ]
    axes = draw(views, ["features"]).axes[:4]
    named = [[label.get_text() for label in each.get_yticklabels()] for each in axes]
    assert named == [["below 30", "from 30"], ["below 65", "from 65"], ["below 1", "1 to 2", "from 2"], ["0", "1"]]
    assert len({each.get_ylim() for each in axes}) == 1


def test_numbers_contrast_with_their_cells_in_every_population():
    big, small = np.array([[900, 40], [5, 400]]), np.array([[9, 4], [1, 3]])
    figure = draw([View("big", big, ["a", "b"]), View("small", small, ["a", "b"])], ["heatmap"])
    for axes in figure.axes[:2]:
        (image,) = axes.images
        for number in axes.texts:
            red, green, blue, _ = image.cmap(image.norm(int(number.get_text())))
            is_dark = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.18
            assert number.get_color() == ("white" if is_dark else "black")


def test_the_bars_are_the_class_shares():
    counts = np.array([[3, 1], [0, 0], [2, 2]])
    axes = draw([View("x", counts, ["a", "b"])], ["bars"]).axes[0]
    tops = [patch.get_data().values.tolist() for patch in axes.patches if isinstance(patch, StepPatch)]
    assert tops == [[1, 0, 1], [0.75, 0, 0.5]]  # the whole stack, then its first class over it


def test_the_axis_of_sizes_is_logarithmic_only_where_they_span_decades():
    even, wide = np.array([[5], [9]]), np.array([[5], [900], [0]])
    assert draw([View("x", even, ["a"])], ["sizes"]).axes[0].get_xscale() == "linear"
    axes = draw([View("x", wide, ["a"])], ["sizes"]).axes[0]
    assert axes.get_xscale() == "log"
    assert sum(bar.get_height() for bar in axes.patches) == 2
    assert "1 without samples not shown" in axes.get_title("left")


@pytest.mark.parametrize("low", [1, 7])
def test_every_client_is_in_the_histogram(low):
    one = View("x", np.random.default_rng(0).integers(low, 5000, (300, 1)), ["a"])
    assert sum(bar.get_height() for bar in draw([one], ["sizes"]).axes[0].patches) == 300


@pytest.mark.parametrize("classes", [1, 10, 11, 20, 21, 100])
def test_every_class_has_a_colour_of_its_own(classes):
    assert len({to_hex(class_colours(classes)(label)) for label in range(classes)}) == classes


def test_many_classes_have_a_colour_bar_in_place_of_a_legend():
    few, many = (draw([view(5, classes)], ["bars"]).axes for classes in (20, 21))
    assert few[-1].get_legend() is not None
    assert many[-1].get_legend() is None
    assert 1 < len(many[-1].get_yticks()) <= 25


def test_the_same_population_gives_the_same_picture(tmp_path):
    figures = [draw([view(3, 3)], ["heatmap", "sizes"]) for _ in range(2)]
    for ending in ("svg", "png", "pdf"):
        paths = [tmp_path / f"{number}.{ending}" for number in range(2)]
        for figure, path in zip(figures, paths, strict=True):
            save(figure, path)
        assert len({path.read_bytes() for path in paths}) == 1, ending


def test_a_population_without_samples_can_be_drawn():
    assert png(draw([View("x", np.zeros((3, 2), dtype=int), ["a", "b"])]))


def test_many_clients_share_columns():
    counts = np.random.default_rng(0).integers(0, 9, (10_000, 3))
    (image,) = heatmap(counts, ["a", "b", "c"]).axes[0].get_images()
    shown = np.asarray(image.get_array())
    assert shown.shape == (3, 4096) and tuple(image.get_extent()) == (-0.5, 9999.5, 2.5, -0.5)
    widths = np.diff(np.linspace(0, 10_000, 4097).astype(int))
    np.testing.assert_allclose(shown @ widths, counts.sum(axis=0))
