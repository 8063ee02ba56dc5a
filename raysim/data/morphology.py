"""Strokes made thinner and thicker, swollen and broken, as Morpho-MNIST does it (Castro et al., JMLR 20(178), 2019).

An image is enlarged four times and cut into ink and ground at half of white; the stroke's middle are the points that
are farthest from the ground among their neighbours, and its thickness t is twice their mean distance. What comes out
is made small again by averaging. Strengths are those with which Morpho-MNIST was made.

Deviations: the middle is not thinned to a skeleton, and fractures may be at its ends; a cut has straight sides.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Image = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

SCALE = 4
THINNER = 0.7
"""Share of the thickness that thinning takes away."""
THICKER = 1.0
"""Share of the thickness that thickening adds."""
SWOLLEN = 3.0
"""Exponent of swelling: at a distance d of the centre is what was at R (d / R)^3."""
REACH = 7.0
"""Swelling's radius R is 7 sqrt(t) / 2, of an image of 28 pixels."""
FRACTURES = 3
GAP = 1.5
"""Width of a fracture, of an image of 28 pixels."""
SIDE = 28
"""The image's side for which Morpho-MNIST states lengths: in larger images they are larger."""


def thinned(image: Image, random: np.random.Generator) -> Image:
    """Ink that is farther from the ground than 0.7 t / 2.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: not drawn from.
    """

    def thin(ink: Mask) -> Mask:
        depth, middle = _middle(ink)
        core: Mask = depth > THINNER * depth[middle].mean()
        return core

    return _on_ink(image, thin)


def thickened(image: Image, random: np.random.Generator) -> Image:
    """Ink, and ground that is nearer to it than t / 2; the arguments are those of `thinned`."""

    def thicken(ink: Mask) -> Mask:
        depth, middle = _middle(ink)
        reach: Mask = ndimage.distance_transform_edt(~ink) <= THICKER * depth[middle].mean()
        return reach

    return _on_ink(image, thicken)


def swollen(image: Image, random: np.random.Generator) -> Image:
    """The surroundings of one point of the stroke's middle, drawn at random, seen through a lens.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: draws the point.
    """

    def swell(ink: Mask) -> Mask:
        depth, middle = _middle(ink)
        centre = random.choice(np.argwhere(middle))
        places = np.indices(ink.shape).astype(np.float64)
        away = places - centre[:, None, None]
        pixel = max(ink.shape) / SIDE
        radius = pixel * REACH * np.sqrt(2 * depth[middle].mean() / pixel) / 2
        share = np.minimum(np.hypot(*away) / radius, 1.0) ** (SWOLLEN - 1)
        seen = ndimage.map_coordinates(ink.astype(np.float64), centre[:, None, None] + away * share, order=1)
        swelling: Mask = seen >= 0.5
        return swelling

    return _on_ink(image, swell)


def fractured(image: Image, random: np.random.Generator) -> Image:
    """Three cuts across the stroke, at points of its middle drawn at random.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: draws the points.
    """

    def fracture(ink: Mask) -> Mask:
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

    return _on_ink(image, fracture)


def _on_ink(image: Image, change: Callable[[Mask], Mask]) -> Image:
    """The image after a change of its enlarged ink; an image without ink stays as it is."""
    large = ndimage.zoom(image.astype(np.float64), SCALE, order=1, mode="nearest", grid_mode=True)
    ink = large >= 127.5
    if not ink.any() or ink.all():
        return image
    height, width = image.shape
    shares = change(ink).reshape(height, SCALE, width, SCALE).mean(axis=(1, 3))
    small: Image = np.rint(255 * shares).astype(np.uint8)
    return small


def _middle(ink: Mask) -> tuple[npt.NDArray[np.float64], Mask]:
    """Each point's distance to the ground, and the points where it is largest among the neighbours."""
    depth = ndimage.distance_transform_edt(ink)
    return depth, ink & (depth >= ndimage.maximum_filter(depth, size=3))


def _direction(points: npt.NDArray[np.int64], centre: npt.NDArray[np.int64], reach: float) -> npt.NDArray[np.float64]:
    """The unit vector along which the middle runs near a point of it."""
    away = points - centre
    near = away[np.hypot(away[:, 0], away[:, 1]) <= reach].astype(np.float64)
    along: npt.NDArray[np.float64] = np.linalg.eigh(near.T @ near)[1][:, -1]
    return along
