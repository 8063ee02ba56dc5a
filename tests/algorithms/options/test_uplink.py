"""The stages of the uplink: their formulas, their bias, and the bytes of a message that is really written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Clip,
    InputError,
    Local,
    Noise,
    Participation,
    Quantise,
    RandomK,
    Sharing,
    Sign,
    Stage,
    TopK,
    Uplink,
    fedasync,
    fedavg,
    fedbn,
)
from algorithms.names import ALGORITHMS
from algorithms.options.stages import Changes

LOCAL = Local(lr=0.05, batch_size=4)


def changes(rows: int, size: int, seed: int = 0, layers: Sequence[int] = ()) -> Changes:
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, size, generator=stream, dtype=torch.float64)
    draws = tuple(torch.Generator().manual_seed(seed + 1000 + row) for row in range(rows))
    return Changes(values, size, tuple(layers) or (size,), draws=draws)


def test_clip_scales_long_changes_alone() -> None:
    given = changes(3, 50)
    given = replace(given, values=given.values * torch.tensor([[0.001], [1.0], [0.0]], dtype=torch.float64))
    short, long, zero = Uplink((Clip(2.0),)).sent(given)
    assert torch.equal(short, given.values[0]) and not zero.any()
    torch.testing.assert_close(long, given.values[1] * 2 / given.values[1].norm())


def test_clip_by_layer_bounds_each_layer_and_the_model() -> None:
    given = changes(4, 60, layers=(10, 30, 20))
    sent = Uplink((Clip(3.0, "layer"),)).sent(given)
    for part, whole in zip(sent.split([10, 30, 20], 1), given.values.split([10, 30, 20], 1), strict=True):
        torch.testing.assert_close(part.norm(dim=1), whole.norm(dim=1).clamp(max=3 / sqrt(3)))
    assert (sent.norm(dim=1) <= 3 + 1e-12).all()


def test_top_k_keeps_the_largest_values() -> None:
    given = changes(2, 40)
    for sent, v in zip(Uplink((TopK(0.1),)).sent(given), given.values, strict=True):
        order = np.argsort(-np.abs(v.numpy()))
        assert np.array_equal(np.flatnonzero(sent.numpy()), np.sort(order[:4]))
        assert torch.equal(sent[sent != 0], v[sent != 0])


def test_sign_is_scaled_by_the_mean_magnitude_of_what_is_sent() -> None:
    given = replace(changes(1, 4), values=torch.tensor([[3.0, -1.0, 0.0, -4.0]]))
    assert Uplink((Sign(),)).sent(given).tolist() == [[2.0, -2.0, 2.0, -2.0]]
    assert Uplink((TopK(0.5), Sign())).sent(given).tolist() == [[3.5, 0.0, 0.0, -3.5]]


def test_noise_has_its_standard_deviation() -> None:
    given = changes(2, 20_000)
    noise = Uplink((Noise(0.3),)).sent(given) - given.values
    assert abs(float(noise.std()) - 0.3) < 0.01 and abs(float(noise.mean())) < 0.01
    assert not torch.equal(noise[0], noise[1])


@pytest.mark.parametrize("stage", [Quantise(1), Quantise(4), Quantise(100), RandomK(0.1), RandomK(0.75)])
def test_unbiased_stages_have_the_change_as_their_mean(stage: Stage) -> None:
    one, rows = changes(1, 20), 20_000
    many = replace(changes(rows, 20, 7), values=one.values.expand(rows, 20))
    sent = Uplink((stage,)).sent(many)
    error = (sent.mean(0) - one.values[0]) / (sent.std(0) / sqrt(rows) + 1e-12)
    assert float(error.abs().max()) < 5
    assert float(sent.std(0).max()) > 0


def test_top_k_is_biased() -> None:
    given = changes(1, 20)
    assert not torch.allclose(Uplink((TopK(0.1),)).sent(given), given.values)


def bits(numbers: Sequence[int], width: int) -> bytes:
    """Return whole numbers of some bits each, side by side."""
    shifts = np.arange(width)
    return np.packbits((np.array(numbers, np.int64)[:, None] >> shifts & 1).astype(np.uint8).ravel()).tobytes()


def unbits(message: bytes, width: int, count: int) -> np.ndarray:
    each = np.unpackbits(np.frombuffer(message, np.uint8), count=width * count).reshape(count, width)
    return (each.astype(np.int64) << np.arange(width)).sum(1)


def written(sent: np.ndarray, values: str, levels: int = 0, norm: float = 0.0, seeded: bool = False) -> bytes:
    """Write a change as a message, read it again, and return it: a serialiser of the tests' own."""
    places = np.flatnonzero(sent)
    dense = len(places) == len(sent)
    width = (len(sent) - 1).bit_length()
    header = b"" if dense else bits(places.tolist(), width)
    if not dense and len(header) > -(-len(sent) // 8):
        header = bits((sent != 0).astype(int).tolist(), 1)
    header = b"\0" * 8 if seeded and not dense else header  # a seed gives the places
    picked = sent[places]
    if values == "whole":
        body = picked.tobytes()
        read = np.frombuffer(body, sent.dtype)
    elif values == "sign":
        scale = np.abs(picked[:1])
        body = scale.tobytes() + bits((picked < 0).astype(int).tolist(), 1)
        read = np.where(unbits(body[sent.itemsize :], 1, len(picked)) == 1, -scale, scale)
    else:
        width = (2 * levels).bit_length()
        steps = np.rint(sent * levels / norm).astype(int)
        body = sent.dtype.type(norm).tobytes() + bits((steps + levels).tolist(), width)
        read = (unbits(body[sent.itemsize :], width, len(sent)) - levels) * (norm / levels)
        picked = sent
    np.testing.assert_allclose(read, picked, rtol=1e-6, atol=1e-6)
    return header + body


@pytest.mark.parametrize("size", [1, 9, 64, 1001])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_are_those_of_a_real_message(size: int, share: float, dtype: torch.dtype) -> None:
    given = changes(1, size)
    given = replace(given, values=given.values.to(dtype))
    cases: list[tuple[tuple[Stage, ...], str, bool]] = [
        ((TopK(share),), "whole", False),
        ((RandomK(share),), "whole", True),
        ((Clip(1.0), TopK(share), Sign()), "sign", False),
        ((RandomK(share), Clip(0.5)), "whole", True),
        ((Sign(),), "sign", False),
    ]
    for chain, values, seeded in cases:
        uplink = Uplink(chain)
        sent = uplink.sent(given)[0].numpy()
        assert len(written(sent, values, seeded=seeded)) == uplink.nbytes(size, dtype.itemsize), chain


@pytest.mark.parametrize("levels", [1, 2, 7, 8, 255])
def test_bytes_of_quantised_values(levels: int) -> None:
    given = changes(1, 321)
    uplink = Uplink((Quantise(levels),))
    sent = uplink.sent(given)[0].numpy()
    message = written(sent, "levels", levels, float(given.values.norm()))
    # `written` writes no header for a dense change, and QSGD's message has a place for each 0.
    dense = sent.copy()
    dense[dense == 0] = 1
    assert len(message) - (len(written(sent, "whole")) - 8 * np.count_nonzero(sent)) == uplink.nbytes(321, 8)


def test_a_message_without_stages_is_the_model() -> None:
    assert Uplink().nbytes(1000, 4) == 4000 and Uplink((Clip(1.0), Noise(0.1))).nbytes(1000, 4) == 4000
    assert Uplink((TopK(0.01),)).nbytes(0, 4) == 0
    # Ten values of 4 bytes; ten places of 10 bits, and of 11 bits where one value is more.
    assert [Uplink((TopK(0.01),)).nbytes(n, 4) for n in (1024, 1025)] == [40 + 13, 40 + 14]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Clip(0.0), "uplink.norm = 0.0: must be a number > 0"),
    (lambda: Clip(1.0, "row"), "uplink.by = 'row'"),  # type: ignore[arg-type]
    (lambda: Noise(inf), "uplink.std = inf"),
    (lambda: TopK(0.0), "uplink.share = 0.0: must be in"),
    (lambda: RandomK(1.5), "uplink.share = 1.5: must be in"),
    (lambda: Quantise(0), "uplink.levels = 0"),
    (lambda: Uplink((TopK(0.1), RandomK(0.1))), "must pick values only once"),
    (lambda: Uplink((Sign(), Quantise(2))), "must round values only once"),
    (lambda: Uplink((TopK(0.1), Clip(1.0, "layer"))), "must clip whole layers; clip first"),
    (lambda: Uplink((Quantise(2), Noise(1.0))), "must add noise first"),
    (lambda: Uplink((), feedback=True), "with an empty chain"),
    (lambda: Uplink((Noise(1.0),), feedback=True), "would take the noise out again"),
    (lambda: Uplink((Clip(1.0),), feedback=True), "would keep what the clipping cut off"),
    (lambda: Uplink((Sign(), Clip(1.0, "layer"))), "must have one scale"),
    (lambda: Uplink((RandomK(0.1),), feedback=True), "set scale = false"),
    (lambda: ALGORITHMS["centralized"](Participation(), LOCAL).having(Uplink((Sign(),))), "with united data"),
    (
        lambda: ALGORITHMS["singleset"](Participation(), LOCAL).having(Uplink((Sign(),))),
        'with sharing.weights = "personal"',
    ),
    (lambda: fedasync(Participation(), LOCAL).having(Uplink((Sign(),), True)), "with asynchronous arrivals"),
    (
        lambda: replace(fedbn(Participation(), LOCAL), sharing=Sharing(affine="personal", newcomer="average")).having(
            Uplink((Sign(),), True)
        ),
        'algorithm.newcomer = "average" with uplink.feedback = true: must be "initial"',
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert message in str(error.value) and "\n" not in str(error.value)


@dataclass(frozen=True)
class Placed(Stage):
    """A user's stage that sends the first two values, at some places."""

    places: Any = field(compare=False)

    def __call__(self, changes: Changes) -> Changes:
        return replace(changes, values=changes.values[:, :2], places=self.places)


ASCENDING = "must return ascending int64 places below 6, as `changes.at` does (test_uplink.py, line "


@pytest.mark.parametrize(
    ("places", "duty"),
    [
        (None, "must return a place for each value if it sends fewer than 6"),
        (torch.tensor([[0]]), "must return a place for each value if it sends fewer than 6"),
        (torch.tensor([[0, 1]], dtype=torch.int32), ASCENDING),
        (torch.tensor([[1, 0]]), ASCENDING),
        (torch.tensor([[2, 2]]), ASCENDING),
        (torch.tensor([[0, 6]]), ASCENDING),
        (torch.tensor([[-1, 0]]), ASCENDING),
        (np.array([[0, 1]]), ASCENDING),
    ],
)
def test_places_of_a_users_stage_that_no_message_can_have_are_refused(places: Any, duty: str) -> None:
    with pytest.raises(InputError) as error:
        Uplink((Placed(places),)).sent(changes(1, 6))
    assert duty in str(error.value) and "\n" not in str(error.value)
    sent = Uplink((Placed(torch.tensor([[1, 4]])),)).sent(given := changes(1, 6))
    assert sent.tolist() == [[0, given.values[0, 0], 0, 0, given.values[0, 1], 0]]


def test_a_users_stage_derived_from_clip_is_called() -> None:
    class Own(Clip):
        pass

    assert (Uplink((Clip(1.0),)).clips_alone, Uplink((Own(1.0),)).clips_alone) == (1.0, None)


def test_all_phases_send_alike_and_feedback_is_personal() -> None:
    algorithm = fedavg(Participation(), LOCAL).having(Uplink((TopK(0.1),), feedback=True))
    assert algorithm.sharing.slots["feedback"] == "personal"
    fixed = ALGORITHMS["fixbn"](Participation(), LOCAL).having(Uplink((Sign(),)))
    assert all(phase.option(Uplink) == Uplink((Sign(),)) for phase in fixed.phases) and len(list(fixed.phases)) > 1


def test_the_norm_of_a_long_change_is_exact() -> None:
    values = torch.full((1, 2_000_000), 1e-3)
    clipped = Clip(0.5)(Changes(values, 2_000_000, (2_000_000,))).values
    assert float(torch.linalg.vector_norm(clipped.double())) == pytest.approx(0.5, rel=1e-6)
