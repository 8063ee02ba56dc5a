"""Out of memory: the block that fits is named, on every fleet, and the run folder stays."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch

import partitioning
from algorithms import (
    Block,
    ClientInput,
    ClientUpdates,
    Function,
    Local,
    Output,
    Participation,
    Samples,
    Worker,
    begin,
    fedavg,
)
from algorithms.core.fleet import Around
from algorithms.options.exchange import AfterCommonStep
from algorithms.options.gathered import Gathered
from algorithms.options.measures import Compared
from algorithms.parts.client_update import round_of
from algorithms.rounds.asynchronous import ReturnedUpdates
from algorithms.rounds.gossip import SentModels
from algorithms.rounds.sizes import AtSize
from algorithms.rounds.union import UnionUpdate
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.common.errors import OutOfMemoryError, of_algorithm
from raysim.data.sources import load
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.out_of_memory import is_out_of_memory, models_fit
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.worker_plan import WorkerPlan
from raysim.models.build import MODELS, ModelBuilder
from tests.kit.ray import SharedRay

MORE_THAN_ANY = 2**48
"""Numbers that no machine can hold."""

LOCAL = Local(lr=0.1, batch_size=32)


@dataclass(frozen=True)
class Greedy(ClientUpdates):
    """Client updates that lack memory from a number of clients on, with the error of a GPU or of main memory."""

    most: int = 0
    device: str = "cuda"

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        if len(block.clients) > self.most and self.device == "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if len(block.clients) > self.most:
            torch.empty(MORE_THAN_ANY)
        return super().__call__(worker, block, *values)


@dataclass(frozen=True)
class Hungry(Function):
    """Work that is no client update."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Any, right: Any) -> Any:
        return left

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        return Output(torch.empty(MORE_THAN_ANY))


@dataclass(frozen=True)
class Broken(Hungry):
    """Work that fails for another reason."""

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        raise RuntimeError("something else")


class Meal(torch.nn.Module):
    """A model that needs too much at its twelfth step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.linear, self.steps = torch.nn.Linear(64, classes), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        if self.steps == 12:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        logits: torch.Tensor = self.linear(x.flatten(1))
        return logits


def meal(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """A model that needs too much."""
    return Meal(classes)


Fleets = dict[str, Callable[[], InlineFleet | RayFleet]]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> WorkerPlan:
    path = tmp_path_factory.mktemp("memory") / "population"
    partitioning.make(load("digits").train, path, scheme="iid", clients=8)
    model = ModelPlan("mlp", {"hidden": (16,)}, (1, 8, 8), 10, seed=1)
    return WorkerPlan(path, model, fedavg(Participation(), LOCAL), path.parent / "personal", block=8).resolved()


@pytest.fixture(scope="module")
def fleets(plan: WorkerPlan, shared_ray: SharedRay) -> Any:
    actors = shared_ray.place(2)
    with InlineWorkplace() as here:
        yield {"inline": lambda: here.fleet(plan), "ray": lambda: actors.fleet(plan)}


def message(fleet: InlineFleet | RayFleet, plan: WorkerPlan, **own: Any) -> str:
    """Message of greedy client updates in one block of all clients."""
    state = begin(plan.module(), fleet, 0)
    greedy = Greedy(LOCAL, Samples(), seed=0, round_number=1, aggregate=True, **own)
    block = Block(0, tuple(range(8)), 1797, (ClientInput(None, 0.0),) * 8)
    with closing(fleet), pytest.raises(OutOfMemoryError) as error:
        list(fleet.map(greedy, [block], [fleet.put((state.model, state.initial))]))
    return str(error.value)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["inline", "ray"])
def test_the_block_that_fits_is_named(fleets: Fleets, plan: WorkerPlan, name: str, device: str) -> None:
    said = message(fleets[name](), plan, most=3, device=device)
    # Of 8, 4, 2, 1 clients: 8 and 4 are too many.
    assert said == (
        "round 1: a block of 8 clients, 8 at once, is out of memory, and its first 2 fit: set fleet.block = 2 "
        "(a new run: other bytes), or let fewer actors share the memory (the same bytes)"
    )


@pytest.mark.parametrize("name", ["inline", "ray"])
def test_asynchronous_updates_name_the_block_that_fits(fleets: Fleets, plan: WorkerPlan, name: str) -> None:
    sent = ReturnedUpdates(Greedy(LOCAL, Samples(), seed=0, round_number=1, aggregate=False, most=3))
    with closing(fleets[name]()) as fleet:
        state = begin(plan.module(), fleet, 0)
        models = (fleet.put(state.model),) * 8
        block = Block(0, tuple(range(8)), 1797, (ClientInput(None, 0.0, 1),) * 8, models)
        with pytest.raises(OutOfMemoryError, match=r"set fleet.block = 2 "):
            list(fleet.map(sent, [block], [fleet.put((None, state.initial))]))


@pytest.mark.parametrize("name", ["inline", "ray"])
def test_where_no_block_fits_another_remedy_is_named(fleets: Fleets, plan: WorkerPlan, name: str) -> None:
    said = message(fleets[name](), plan, most=0)
    assert "even one client does not fit: lower local.batch_size" in said


@pytest.mark.parametrize("name", ["inline", "ray"])
def test_work_that_is_no_update_has_no_block_to_set(fleets: Fleets, name: str) -> None:
    with (
        closing(fleets[name]()) as fleet,
        pytest.raises(OutOfMemoryError, match="Hungry of 2 clients is out") as error,
    ):
        list(fleet.map(Hungry(), [Block(0, (1, 2), 1)]))
    assert "fleet.block" not in str(error.value)


def test_other_errors_stay_what_they_are(fleets: Fleets) -> None:
    with closing(fleets["inline"]()) as fleet, pytest.raises(RuntimeError, match="something else") as error:
        list(fleet.map(Broken(), [Block(0, (1, 2), 1)]))
    assert not isinstance(error.value, OutOfMemoryError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_what_is_a_lack_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize("kind", [AfterCommonStep, AtSize, Compared, Gathered, SentModels, UnionUpdate])
def test_a_function_around_client_updates_names_their_round(kind: type[Around]) -> None:
    updates = ClientUpdates(Local(), Samples(), 0, 7)
    around = kind(updates, *(None for _ in fields(kind)[1:]))
    assert round_of(updates) == round_of(around) == round_of(ReturnedUpdates(around)) == 7


def test_models_that_do_not_fit() -> None:
    with pytest.raises(OutOfMemoryError, match=r"set fleet.block below 512 .*, or let fewer actors"), models_fit(512):
        torch.empty(MORE_THAN_ANY)
    with pytest.raises(OutOfMemoryError, match="updates: let fewer actors share"), of_algorithm("x"), models_fit(1):
        torch.empty(MORE_THAN_ANY)
    with pytest.raises(RuntimeError, match="something else"), models_fit(1):
        raise RuntimeError("something else")


def test_a_run_that_is_out_of_memory_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MODELS, "meal", ModelBuilder(meal))  # type: ignore[arg-type]
    (tmp_path / "x.toml").write_text(
        'rounds = 5\n[data]\ndataset = "digits"\n[partition]\nclients = 5\n[model]\nname = "meal"\n'
        '[local]\nbatch_size = "full"\nexecution = "sequential"\n'
    )
    with pytest.raises(SystemExit) as done:
        run_command(cli, "raysim", ["run", str(tmp_path / "x.toml"), "--inline", "--out", str(tmp_path / "run")])
    assert done.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("raysim: fedavg: round 3: a block of 1 client, 1 at once, is out of memory")
    assert (tmp_path / "run" / "fedavg" / "metrics.journal").exists()
    log = (tmp_path / "run" / "run.log").read_text()
    assert "fedavg: round 3" in log and "Traceback" not in log
