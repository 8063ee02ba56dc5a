"""Domains made from any set of images without a download: the same labels, other features.

Strokes are made thinner and thicker, swollen and broken, like in Morpho-MNIST (Castro et al., JMLR 20(178), 2019). An
image is enlarged four times and cut into ink and ground at half of white. The middle of the stroke consists of the
points that are farthest from the ground among their neighbours. The stroke's thickness t is twice their mean distance.
Averaging reduces the result to the original size. Strengths are those of Morpho-MNIST.

Deviations: the middle is not thinned to a skeleton, fractures may be at its ends, and a cut has straight sides.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy  # it imports its modules when they are first used
from numpy.random import Generator

from algorithms import Purpose, generator
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError, unknown
from raysim.data.domains import DOMAIN, image_array
from raysim.data.features import ArrayColumn, ImageColumn, features
from raysim.data.images import Pixels, encoded, is_image, pixels

Mask = npt.NDArray[np.bool_]
Change = Callable[[Pixels, Generator], Pixels]

BLUR = 0.05
"""Standard deviation of the blur, as a share of the image's height: 1.4 of 28 pixels."""
CONTRAST = 0.3
"""Share of the distance to middle grey that remains."""
NOISE = 0.2
"""Standard deviation of the noise, as a share of white."""
PATCHES = 4
"""Random colours along a side of a background, with smooth transitions."""
SCALE = 4
THINNER = 0.7
"""Share of the thickness that thinning removes."""
THICKER = 1.0
"""Share of the thickness that thickening adds."""
SWOLLEN = 3.0
"""Exponent of swelling: the value at a distance d of the centre comes from R (d / R)^3."""
REACH = 7.0
"""Radius R of swelling is 7 sqrt(t) / 2, in an image of 28 pixels."""
FRACTURES = 3
GAP = 1.5
"""Width of a fracture, in an image of 28 pixels."""
SIDE = 28
"""Side of the image for which Morpho-MNIST states lengths; lengths grow with the image."""


def shifted(tables: Tables, label: str, shifts: Sequence[str], seed: int) -> Tables:
    """Deal a set of images among domains, and change the images of each domain in its own way.

    Every domain gets its own random share of the rows and of the test rows: N / D of them, and one more for the first
    domains if D does not divide N. If one domain has colour, all have.

    Args:
        tables: train and test table of images, grey or in colour, of one size: arrays or encoded.
        label: column of classes; other columns are dropped.
        shifts: names in `SHIFTS`, one per domain.
        seed: key of all draws.

    Returns:
        `image`, uint8 [channels, height, width], the label, and `domain`, the shift's name.

    Raises:
        InputError: a shift is unknown or repeated, there is none, there are no images, or strokes are to be changed
            in images in colour.
    """
    parts = shift_domains(tables, label, shifts, seed)
    train = {name: own for name, (own, _) in parts.items()}
    test = {name: own for name, (_, own) in parts.items() if own is not None}
    return _joined(train), _joined(test) if test else None


def shift_domains(tables: Tables, label: str, shifts: Sequence[str], seed: int) -> Mapping[str, Tables]:
    """Return the train and test table of each shift; see `shifted`."""
    listed = ", ".join(SHIFTS)
    if not shifts:
        raise InputError(f'data.shifts is empty: must have at least one of {listed}; set shifts = ["none", "invert"]')
    for name in shifts:
        if name not in SHIFTS:
            raise unknown(f"data.shifts {name!r}", name, list(SHIFTS))
        if list(shifts).count(name) > 1:
            raise InputError(f"data.shifts names {name!r} twice: must name each domain once; remove one")
    train, test = tables
    trains = _deal(train, label, shifts, seed, 0)
    tests = dict.fromkeys(shifts) if test is None else _deal(test, label, shifts, seed, 1)
    return {name: (trains[name], tests[name]) for name in shifts}


def _deal(table: pa.Table, label: str, shifts: Sequence[str], seed: int, part: int) -> Mapping[str, pa.Table]:
    images = _images(table, label)
    if len(images) < len(shifts):
        raise InputError(f"{len(images)} images for {len(shifts)} domains: name fewer in data.shifts")
    if images.shape[1] == 3 and (strokes := [name for name in shifts if name in STROKES]):
        raise InputError(f"data.shifts {strokes[0]!r} with images in colour: must be grey, light on dark; leave it out")
    order = generator(seed, Purpose.SHIFT, part).permutation(len(images))
    colours = 3 if "colour" in shifts else images.shape[1]
    made = {}
    for place, name in enumerate(shifts):
        own = np.sort(order[place :: len(shifts)])
        changed = SHIFTS[name](images[own], generator(seed, Purpose.SHIFT, part, place + 1))
        alike = np.broadcast_to(changed, (len(own), colours, *images.shape[2:]))
        made[name] = pa.table({"image": nested(alike), label: table[label].take(pa.array(own))})
    return made


def _joined(tables: Mapping[str, pa.Table]) -> pa.Table:
    named = [table.append_column(DOMAIN, pa.array([name] * len(table), pa.string())) for name, table in tables.items()]
    return pa.concat_tables(named)


def _images(table: pa.Table, label: str) -> Pixels:
    """Return all images of a table, [n, channels, height, width]."""
    others = [name for name in table.schema.names if name not in (label, DOMAIN)]
    form = features(table.select([*others, label]).schema, label)
    if isinstance(form, ArrayColumn):
        shape = (1, *form.shape) if len(form.shape) == 2 else form.shape
        if is_image(shape):
            return image_array(table[form.column], shape)
    if not isinstance(form, ImageColumn):
        raise InputError("there are no images to shift: give a data set with grey or colour images")
    found = [
        pixels(data.as_py(), f"column {form.column!r}, row {row},")
        for row, data in enumerate(value for chunk in table[form.column].chunks for value in encoded(chunk))
    ]
    odd = next((row for row, image in enumerate(found) if image.shape != found[0].shape), None)
    if odd is not None:
        raise InputError(
            f"column {form.column!r}, row {odd}, has the shape {found[odd].shape}, but the first image has "
            f"{found[0].shape}: give all images one size and either grey or colour"
        )
    return np.stack(found)


def _coloured(images: Pixels, random: Generator) -> Pixels:
    # MNIST-M takes the difference to patches of photographs. Here the patches are drawn.
    height, width = images.shape[2:]
    grounds = random.uniform(0, 255, (len(images), 3, PATCHES, PATCHES))
    made = np.empty((len(images), 3, height, width), dtype=np.uint8)
    for place, ground in enumerate(grounds):
        scale = (1, height / PATCHES, width / PATCHES)
        smooth = scipy.ndimage.zoom(ground, scale, order=1, mode="nearest", grid_mode=True)
        made[place] = np.rint(np.abs(smooth - images[place]))
    return made


def _blurred(images: Pixels, random: Generator) -> Pixels:
    width = BLUR * images.shape[2]
    smooth = scipy.ndimage.gaussian_filter(images.astype(np.float32), (0, 0, width, width))
    blurred: Pixels = np.rint(smooth).astype(np.uint8)
    return blurred


def _flattened(images: Pixels, random: Generator) -> Pixels:
    flat: Pixels = np.rint(127.5 + CONTRAST * (images.astype(np.float32) - 127.5)).astype(np.uint8)
    return flat


def _noisy(images: Pixels, random: Generator) -> Pixels:
    noise = random.standard_normal(images.shape, dtype=np.float32)
    noisy: Pixels = np.rint(np.clip(images + 255 * NOISE * noise, 0, 255)).astype(np.uint8)
    return noisy


def _on_ink(change: Callable[[Mask, Generator], Mask]) -> Change:
    """Return the change of grey images from that of one image's enlarged ink; an image without ink stays."""

    @wraps(change)
    def changed(images: Pixels, random: Generator) -> Pixels:
        made = images.copy()
        height, width = images.shape[2:]
        for place, (image,) in enumerate(images):
            large = scipy.ndimage.zoom(image.astype(np.float64), SCALE, order=1, mode="nearest", grid_mode=True)
            ink = large >= 127.5
            if ink.any() and not ink.all():
                shares = change(ink, random).reshape(height, SCALE, width, SCALE).mean(axis=(1, 3))
                made[place, 0] = np.rint(255 * shares)
        return made

    return changed


@_on_ink
def thinned(ink: Mask, random: Generator) -> Mask:
    """Remove ink that is at most 0.7 t / 2 away from the ground."""
    depth, middle = _middle(ink)
    core: Mask = depth > THINNER * depth[middle].mean()
    return core


@_on_ink
def thickened(ink: Mask, random: Generator) -> Mask:
    """Add ground that is at most t / 2 away from the ink."""
    depth, middle = _middle(ink)
    reach: Mask = scipy.ndimage.distance_transform_edt(~ink) <= THICKER * depth[middle].mean()
    return reach


@_on_ink
def swollen(ink: Mask, random: Generator) -> Mask:
    """Magnify the surroundings of one random point of the stroke's middle, like a lens."""
    depth, middle = _middle(ink)
    centre = random.choice(np.argwhere(middle))
    places = np.indices(ink.shape).astype(np.float64)
    away = places - centre[:, None, None]
    pixel = max(ink.shape) / SIDE
    radius = pixel * REACH * np.sqrt(2 * depth[middle].mean() / pixel) / 2
    share = np.minimum(np.hypot(*away) / radius, 1.0) ** (SWOLLEN - 1)
    seen = scipy.ndimage.map_coordinates(ink.astype(np.float64), centre[:, None, None] + away * share, order=1)
    swelling: Mask = seen >= 0.5
    return swelling


@_on_ink
def fractured(ink: Mask, random: Generator) -> Mask:
    """Cut the stroke at three random points of its middle."""
    depth, middle = _middle(ink)
    points = np.argwhere(middle)
    places = np.indices(ink.shape)
    broken = ink.copy()
    for centre in random.permutation(points)[:FRACTURES]:
        along = _direction(points, centre, 2 * depth[tuple(centre)] + SCALE)
        away = places - centre[:, None, None]
        lengthwise = np.abs(np.tensordot(along, away, axes=1))
        across = np.abs(np.tensordot(along[::-1] * (1, -1), away, axes=1))
        broken &= (lengthwise > GAP * max(ink.shape) / SIDE / 2) | (across > depth[tuple(centre)] + SCALE)
    return broken


def _middle(ink: Mask) -> tuple[npt.NDArray[np.float64], Mask]:
    """Return each point's distance to the ground, and a mask of its local maxima."""
    depth = scipy.ndimage.distance_transform_edt(ink)
    return depth, ink & (depth >= scipy.ndimage.maximum_filter(depth, size=3))


def _direction(points: npt.NDArray[np.int64], centre: npt.NDArray[np.int64], reach: float) -> npt.NDArray[np.float64]:
    """Return the unit vector along the stroke's middle near one of its points."""
    away = points - centre
    near = away[np.hypot(away[:, 0], away[:, 1]) <= reach].astype(np.float64)
    along: npt.NDArray[np.float64] = np.linalg.eigh(near.T @ near)[1][:, -1]
    return along


STROKES = ("thin", "thick", "swell", "fracture")

SHIFTS: Mapping[str, Change] = MappingProxyType(
    {
        "none": lambda images, random: images,
        "invert": lambda images, random: 255 - images,
        "colour": _coloured,
        "blur": _blurred,
        "contrast": _flattened,
        "noise": _noisy,
        "thin": thinned,
        "thick": thickened,
        "swell": swollen,
        "fracture": fractured,
    }
)
"""Changes of a domain's images, uint8 [n, channels, height, width]; only `colour` adds channels.

`STROKES` names those that take light ink on dark ground.
"""
