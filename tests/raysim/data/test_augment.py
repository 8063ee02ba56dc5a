"""The papers' augmentations: known draws, by hand and against torchvision."""

import pytest
import torch
from torch.nn.functional import interpolate

from raysim.common.errors import InputError
from raysim.common.vision import torchvision
from raysim.data.augment import AugmentationChain, ColourJitter, Crop, Flip, ResizedCrop, augmentation
from raysim.data.standardise import MeanAndStd, Standardisation

NINE = torch.arange(1.0, 10).view(1, 1, 3, 3)
STRENGTHS = {"padding": 2, "size": None, "brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": 0.05}


@pytest.mark.parametrize(
    ("draws", "rows"),
    [
        ((0.5, 0.5), [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        ((0.0, 0.99), [[0, 0, 0], [2, 3, 0], [5, 6, 0]]),
        ((0.7, 0.4), [[4, 5, 6], [7, 8, 9], [0, 0, 0]]),
        ((0.34, 0.1), [[0, 1, 2], [0, 4, 5], [0, 7, 8]]),
    ],
)
def test_a_crop_by_hand(draws: tuple[float, float], rows: list[list[float]]) -> None:
    """Of 0 ... 2 rows and columns that are cut off in front, a draw below 1/3 is 0, one from 2/3 on is 2."""
    assert Crop(1)(NINE, torch.tensor([draws])).tolist() == [[rows]]


def test_crops_of_a_batch_are_each_sample_s_own() -> None:
    x, draws = torch.rand(5, 3, 4, 6), torch.rand(5, 2)
    padded = torch.nn.functional.pad(x, [2] * 4)
    for image, whole, (a, b) in zip(Crop(2)(x, draws), padded, (draws * 5).long().tolist(), strict=True):
        assert torch.equal(image, whole[:, a : a + 4, b : b + 6])


def test_flips_below_one_half() -> None:
    x = torch.tensor([[[[1.0, 2.0]]], [[[3.0, 4.0]]]])
    assert Flip()(x, torch.tensor([[0.49], [0.5]])).tolist() == [[[[2, 1]]], [[[3, 4]]]]


def test_a_brightness_by_hand() -> None:
    jitter = ColourJitter(brightness=0.5, contrast=0, saturation=0, hue=0)
    x = torch.tensor([0.25, 0.5, 0.75, 1.0]).view(1, 1, 2, 2)
    assert jitter(x, torch.tensor([[1.0, 0.0, 0.0, 0.0]])).flatten().tolist() == [0.375, 0.75, 1.0, 1.0]
    assert jitter(x, torch.tensor([[0.25, 0.9, 0.9, 0.9]])).flatten().tolist() == [0.1875, 0.375, 0.5625, 0.75]


def test_a_jitter_equals_torchvision_s() -> None:
    from torchvision.transforms.v2 import functional as tv  # late: without the compiler that `vision` leaves out

    generator = torch.Generator().manual_seed(3)
    x, draws = torch.rand(40, 3, 5, 7, generator=generator), torch.rand(40, 4, generator=generator)
    x[0, :, 0, 0], x[1, :, 0, 1] = 0.5, torch.tensor([1.0, 1.0, 0.0])  # no colour, and two largest values
    changed = ColourJitter(0.4, 0.3, 0.6, 0.5)(x, draws)
    for image, made, numbers in zip(x, changed, 2 * draws - 1, strict=True):
        b, c, s, h = numbers.tolist()
        bright = tv.adjust_brightness(image, 1 + 0.4 * b)
        contrasted = tv.adjust_contrast(bright, 1 + 0.3 * c)
        expected = tv.adjust_hue(tv.adjust_saturation(contrasted, 1 + 0.6 * s), 0.5 * h)
        torch.testing.assert_close(made, expected, atol=2e-3, rtol=0)  # its red weighs 0.2989 in grey


def test_a_turn_of_the_hue_by_hand() -> None:
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    jitter = ColourJitter(0, 0, 0, 0.5)
    third = torch.tensor([[0.5, 0.5, 0.5, 0.5 + 1 / 3]])
    torch.testing.assert_close(jitter(red, third).flatten(), torch.tensor([0.0, 1.0, 0.0]), atol=1e-6, rtol=0)


def test_a_grey_image_has_brightness_and_contrast() -> None:
    x, draws = torch.rand(3, 1, 4, 4), torch.rand(3, 4)
    colour = ColourJitter(0.2, 0.2, 0, 0)(x.expand(-1, 3, -1, -1), draws)
    torch.testing.assert_close(ColourJitter()(x, draws), colour[:, :1])


def test_colours_are_changed_before_the_standardisation() -> None:
    x, draws = torch.rand(6, 3, 4, 4), torch.rand(6, 4)
    scale = MeanAndStd((0.5, 0.4, 0.3), (0.2, 0.3, 0.1))
    chain = augmentation(["colour-jitter"], STRENGTHS, Standardisation(scale), (3, 4, 4))
    assert chain is not None and chain.changes == (ColourJitter(standardised=scale),)
    torch.testing.assert_close(chain(scale(x), draws), scale(ColourJitter()(x, draws)), atol=2e-5, rtol=0)


def test_a_chain_gives_each_change_its_own_draws() -> None:
    x, draws = torch.rand(6, 1, 5, 5), torch.rand(6, 3)
    chain = augmentation(
        ["crop", "flip"],
        {**STRENGTHS, "padding": 1},
        Standardisation(MeanAndStd((0.0,), (1.0,)), per_client=True),
        (1, 5, 5),
    )
    assert chain == AugmentationChain((Crop(1), Flip())) and chain.numbers == 3
    assert torch.equal(chain(x, draws), Flip()(Crop(1)(x, draws[:, :2]), draws[:, 2:]))


def test_without_names_nothing_is_changed() -> None:
    assert augmentation([], STRENGTHS, None, (54,)) is None


@pytest.mark.parametrize("shape", [(54,), (2, 4, 4), (8, 8)])
def test_only_images_are_augmented(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="must be on images") as error:
        augmentation(["flip"], STRENGTHS, None, shape)
    assert "\n" not in str(error.value)


def test_a_crop_of_another_size_takes_the_label_along() -> None:
    """Rows 0 to 3 - 2 and columns 0 to 3 - 2 are places of a 2x2 part, and none lies outside."""
    crop, labels = Crop(0, (2, 2)), NINE[:, 0].to(torch.uint8)
    assert crop.shape((1, 3, 3)) == (1, 2, 2)
    draws = torch.tensor([[0.49, 0.5], [1 - 2**-24, 0.0]])
    expected = [[[2, 3], [5, 6]], [[4, 5], [7, 8]]]
    assert crop(NINE.expand(2, -1, -1, -1), draws)[:, 0].tolist() == expected
    assert crop.labels(labels.expand(2, -1, -1), draws).tolist() == expected
    assert crop.labels(labels, draws[:1]).dtype == torch.uint8
    assert Crop(1).labels(labels, torch.tensor([[0.0, 0.99]])).tolist() == [[[255, 255, 255], [2, 3, 255], [5, 6, 255]]]


def test_flips_take_the_label_along_and_colours_leave_it() -> None:
    y = torch.tensor([[[1, 2]], [[3, 255]]], dtype=torch.uint8)
    draws = torch.tensor([[0.49], [0.5]])
    assert Flip().labels(y, draws).tolist() == [[[2, 1]], [[3, 255]]]
    assert ColourJitter(standardised=MeanAndStd((0.0,), (1.0,))).labels(y, draws.expand(-1, 4)) is y


def test_a_chain_moves_labels_as_their_images() -> None:
    x = torch.rand(7, 1, 9, 12)
    y, draws = (x[:, 0] * 100).to(torch.uint8), torch.rand(7, 29)
    names = ["crop", "resized-crop", "flip", "colour-jitter"]
    strengths = {**STRENGTHS, "padding": 0, "size": (6, 5), "scale": (1.0, 1.0), "ratio": (5 / 6, 5 / 6)}
    strengths |= {"brightness": 0, "contrast": 0}
    chain = augmentation(names, strengths, None, (1, 9, 12))
    assert chain is not None and chain.shape((1, 9, 12)) == (1, 6, 5)
    assert torch.equal((chain(x, draws)[:, 0] * 100).to(torch.uint8), chain.labels(y, draws))


@pytest.mark.parametrize("size", [None, (20, 20), (5, 40)])
def test_a_resized_crop_equals_torch_s_interpolation_of_the_part(size: tuple[int, int] | None) -> None:
    generator = torch.Generator().manual_seed(5)
    x, draws = torch.rand(60, 3, 12, 17, generator=generator), torch.rand(60, ResizedCrop.numbers, generator=generator)
    y = torch.randint(0, 20, (60, 12, 17), generator=generator, dtype=torch.uint8)
    change = ResizedCrop(size)
    made, labels = change(x, draws), change.labels(y, draws)
    assert made.shape == (60, 3, *(size or (12, 17))) == (60, *change.shape((3, 12, 17)))
    for image, mask, found, label, first, extent in zip(x, y, made, labels, *change.parts(draws, 12, 17), strict=True):
        (top, left), (height, width) = first.tolist(), extent.tolist()
        part = (..., slice(top, top + height), slice(left, left + width))
        assert image[part].shape == (3, height, width)
        wanted = interpolate(image[part][None], size or (12, 17), mode="bilinear", align_corners=False)[0]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        nearest = interpolate(mask[part][None, None].float(), size or (12, 17), mode="nearest-exact")[0, 0]
        assert torch.equal(label, nearest.to(torch.uint8))


def test_the_parts_of_resized_crops_are_the_field_s() -> None:
    """Areas of 8 % to all, ratios of 3/4 to 4/3, as torchvision draws them; where none of ten fits, the middle."""
    generator = torch.Generator().manual_seed(1)
    draws = torch.rand(20_000, ResizedCrop.numbers, generator=generator)
    first, extent = ResizedCrop().parts(draws, 64, 64)
    assert extent.min() > 0 and first.min() >= 0 and (first + extent).max() <= 64
    share = extent.prod(1) / 64**2
    ratio = extent[:, 1] / extent[:, 0]
    assert 0.075 < share.min() < 0.085 and share.max() == 1 and 0.70 < ratio.min() < ratio.max() < 1.42
    torch.manual_seed(0)
    image = torch.zeros(1, 64, 64)
    crop = torchvision.transforms.RandomResizedCrop
    drawn = torch.tensor([crop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(2000)])
    assert share.double().mean() == pytest.approx(float((drawn[:, 2] * drawn[:, 3] / 64**2).double().mean()), abs=0.02)
    tall = ResizedCrop(None, (1.0, 1.0)).parts(draws[:3], 40, 10)
    assert tall[0].tolist() == [[13, 0]] * 3 and tall[1].tolist() == [[13, 10]] * 3


def test_a_crop_larger_than_the_images_is_refused() -> None:
    with pytest.raises(InputError) as error:
        augmentation(["crop"], {**STRENGTHS, "size": (16, 16)}, None, (1, 8, 8))
    assert "data.crop_size = [16, 16] on images of height and width (8, 8)" in str(error.value)
    assert "\n" not in str(error.value)
