"""Strokes made thinner and thicker, swollen and broken, like in Morpho-MNIST (Castro et al., JMLR 20(178), 2019).

An image is enlarged four times and cut into ink and ground at half of white. The middle of the stroke consists of the
points that are farthest from the ground among their neighbours. The stroke's thickness t is twice their mean distance.
Averaging reduces the result to the original size. Strengths are those of Morpho-MNIST.

Deviations: the middle is not thinned to a skeleton, fractures may be at its ends, and a cut has straight sides.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy  # it imports its modules when they are first used

Image = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

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


def thinned(image: Image, random: np.random.Generator) -> Image:
    """Remove ink that is at most 0.7 t / 2 away from the ground.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: unused.
    """

    def thin(ink: Mask) -> Mask:
        depth, middle = _middle(ink)
        core: Mask = depth > THINNER * depth[middle].mean()
        return core

    return _on_ink(image, thin)


def thickened(image: Image, random: np.random.Generator) -> Image:
    """Add ground that is at most t / 2 away from the ink; the arguments are those of `thinned`."""

    def thicken(ink: Mask) -> Mask:
        depth, middle = _middle(ink)
        reach: Mask = scipy.ndimage.distance_transform_edt(~ink) <= THICKER * depth[middle].mean()
        return reach

    return _on_ink(image, thicken)


def swollen(image: Image, random: np.random.Generator) -> Image:
    """Magnify the surroundings of one random point of the stroke's middle, like a lens.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: generator of the point.
    """

    def swell(ink: Mask) -> Mask:
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

    return _on_ink(image, swell)


def fractured(image: Image, random: np.random.Generator) -> Image:
    """Cut the stroke at three random points of its middle.

    Args:
        image: uint8 [height, width], light ink on dark ground.
        random: generator of the points.
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
    """Return the image after a change of its enlarged ink; an image without ink stays."""
    large = scipy.ndimage.zoom(image.astype(np.float64), SCALE, order=1, mode="nearest", grid_mode=True)
    ink = large >= 127.5
    if not ink.any() or ink.all():
        return image
    height, width = image.shape
    shares = change(ink).reshape(height, SCALE, width, SCALE).mean(axis=(1, 3))
    small: Image = np.rint(255 * shares).astype(np.uint8)
    return small


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
