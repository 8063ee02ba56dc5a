"""The clients' samples where blocks run: what stays, and how long."""

import pytest
import torch

import partitioning
from partitioning import Population
from raysim.data.shards import CACHE_BYTES, Shards, TensorCache, Tensors
from raysim.data.sources import load


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    path = tmp_path_factory.mktemp("shards") / "population"
    return partitioning.make(load("digits").train, path, scheme="iid", clients=6, local_test=0.25)


@pytest.mark.parametrize(
    ("most", "asked", "made"),
    [
        (200, [1, 2, 1, 2], [1, 2]),
        (100, [1, 2, 1, 2], [1, 2, 1, 2]),
        (200, [1, 2, 1, 3, 1, 2], [1, 2, 3, 2]),
        (0, [1, 1, 2, 1], [1, 2, 1]),
    ],
)
def test_a_cache_keeps_what_was_used_last(most: int, asked: list[int], made: list[int]) -> None:
    seen: list[int] = []

    def make(client: int) -> Tensors:
        seen.append(client)
        return torch.full((23,), float(client)), torch.tensor([client])

    cache = TensorCache(most)
    for client in asked:
        assert cache.get(client, make)[1].item() == client
    assert seen == made


def test_parts_of_a_client(population: Population) -> None:
    shards = Shards(population.path)
    for client in range(len(population)):
        whole, train, test = (shards.samples(client, part)[0] for part in ("all", "train", "test"))
        assert len(test) == population.test_sizes[client] > 0
        assert torch.equal(torch.cat([train, test]), whole)


def test_on_a_cpu_there_is_one_copy(population: Population) -> None:
    shards = Shards(population.path)
    assert shards._on_device.most == CACHE_BYTES and shards._pinned is None
    assert shards.samples(0, "all")[0].data_ptr() == shards.samples(0, "all")[0].data_ptr()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("share", "pinned"), [(1.0, False), (1e-12, True)])
def test_on_a_gpu_the_samples_are_the_same(population: Population, share: float, pinned: bool) -> None:
    here, there = Shards(population.path), Shards(population.path, "cuda", share)
    assert (there._pinned is not None) is pinned
    for client in [*range(len(population)), *range(len(population))]:
        for ours, theirs in zip(here.samples(client, "all"), there.samples(client, "all"), strict=True):
            assert theirs.is_cuda and torch.equal(ours, theirs.cpu())


def test_the_union_of_clients_stays_until_another_is_asked_for(population: Population) -> None:
    shards = Shards(population.path)
    x, y = shards.union((1, 3), "train")
    assert torch.equal(x, torch.cat([shards.samples(1, "train")[0], shards.samples(3, "train")[0]]))
    assert torch.equal(y, torch.cat([shards.samples(1, "train")[1], shards.samples(3, "train")[1]]))
    assert shards.union((1, 3), "train")[0].data_ptr() == x.data_ptr()
    assert len(shards.union((1, 3), "all")[0]) > len(x) and len(shards.union((1, 3, 4), "train")[0]) > len(x)
    assert torch.equal(shards.union((2,), "train")[0], shards.samples(2, "train")[0])
