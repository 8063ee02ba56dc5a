"""Images with their channels last in memory: who decides, and that all layers get them so."""

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Compute, Layout, Local, Sharing
from algorithms.training.choose import trainer, with_format
from algorithms.training.resident import Resident
from algorithms.training.sequential import Sequential
from algorithms.training.work import Work


class Viewing(nn.Module):
    """`view` refuses the result of a convolution whose channels lie last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution, self.output = nn.Conv2d(channels, 4, 3), nn.Linear(4 * 6 * 6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.output(self.convolution(x).view(len(x), -1))
        return y


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_images_lie_with_their_channels_last_in_training_and_evaluation(channels: int, last: bool) -> None:
    module = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(channels, 6, 6))
    trained = trainer(resident, Compute("sequential", channels_last=last))
    found: list[bool] = []
    module[1].register_forward_hook(
        lambda _, inputs, y: found.append(y.is_contiguous(memory_format=torch.channels_last))
    )
    x, y = torch.rand(5, channels, 6, 6), torch.tensor([0, 1, 0, 1, 1])
    trained.train(Local(batch_size=3), [Work(x, y, [np.arange(3), np.arange(3, 5)])], 0.1)
    assert found == [last, last]  # four channels lie differently in both formats
    outputs = module.eval()(x)
    assert found == [last] * 3
    plain = nn.Sequential(*module)
    torch.testing.assert_close(plain(x), outputs)


@pytest.mark.parametrize("last", [False, True])
def test_large_linear_layers_behind_convolutions_fold_in_either_format(last: bool) -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 2)
    )
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(1, 16, 16))
    local = Local(batch_size=3, compute=Compute("sequential", channels_last=last))
    trained = trainer(resident, local.compute)
    assert isinstance(trained, Sequential) and trained._folded is not None
    assert [*trained._folded.chosen(local, resident.trained(local))] == ["3"]


def test_the_model_and_the_device_decide_about_channels_last() -> None:
    image, plain = torch.zeros(3, 8, 8), nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    sequential = Compute("sequential")
    assert with_format(sequential, plain, image, "cpu").channels_last is True
    assert with_format(sequential, plain, image, "cuda").channels_last is False
    for channels in (1, 3):
        sample = torch.zeros(channels, 8, 8)
        assert with_format(sequential, Viewing(channels), sample, "cpu").channels_last is False
    assert with_format(sequential, nn.Linear(8, 2), image, "cpu").channels_last is False
    assert with_format(Compute("vectorised"), plain, image, "cpu").channels_last is None
    assert with_format(Compute("sequential", channels_last=False), plain, image, "cpu").channels_last is False
