"""Time rounds of federated averaging in FedJAX, on JAX's CPU backend.

    python fedjax_.py --data a.npz --load A --rounds 5 --warm 2

FedJAX's own algorithm on its default backend: `for_each_client` under `jax.jit`, one client after the other in one
process, where XLA may use every core for a step. The file's name ends in _ because a script's folder comes first on
the path: fedjax.py would be imported instead of fedjax.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stdout
from importlib.metadata import version

# Before JAX is imported: it takes a GPU where there is one.
os.environ["JAX_PLATFORMS"] = "cpu"

from loads import HIDDEN, LOADS, Load, needed, parser, read, report

with needed("fedjax"):
    import jax

    # Newer versions of JAX keep it in jax.tree_util only; the last FedJAX still asks for it here.
    jax.tree_map = jax.tree_util.tree_map

    import fedjax
    import haiku as hk
    import numpy as np
    from fedjax.algorithms import fed_avg


def network(load: Load):
    """The load's model as a function from a batch to logits; images are [n, height, width, channels]."""

    def mlp(batch):
        return hk.nets.MLP((*HIDDEN, load.classes))(hk.Flatten()(batch["x"]))

    def cnn(batch):
        # As in torch_models.py: convolutions without padding.
        x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(batch["x"]))
        x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x))
        x = hk.dropout(hk.next_rng_key(), 0.25, hk.max_pool(x, (2, 2, 1), (2, 2, 1), "VALID"))
        x = jax.nn.relu(hk.Linear(128)(hk.Flatten()(x)))
        return hk.Linear(load.classes)(hk.dropout(hk.next_rng_key(), 0.5, x))

    return {"mlp": mlp, "cnn": cnn}[load.model]


def train(path: str, name: str, rounds: int) -> list[float]:
    """Seconds at the start and after each merge."""
    load = LOADS[name]
    x, y = read(path, name)
    x = np.ascontiguousarray(np.moveaxis(x, 2, -1))
    data = fedjax.InMemoryFederatedData({client: {"x": x[client], "y": y[client]} for client in range(load.clients)})
    model = fedjax.create_model_from_haiku(
        hk.transform(network(load)),
        sample_batch={"x": x[0, :1], "y": y[0, :1]},
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(load.lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),  # the mean of the clients' models becomes the model
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(load.batch, num_epochs=load.epochs),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, num_clients=load.cohort, seed=0)
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    stamps = [time.perf_counter()]
    for _ in range(rounds):
        state, _ = algorithm.apply(state, sampler.sample())
        # JAX returns before the work is done.
        jax.block_until_ready(state.params)
        stamps.append(time.perf_counter())
    return stamps


def main() -> None:
    """Train and print the line."""
    arguments = parser(__doc__).parse_args()
    with redirect_stdout(sys.stderr):
        stamps = train(arguments.data, arguments.load, arguments.warm + arguments.rounds)
    report("fedjax", version("fedjax"), arguments, 1, stamps)


if __name__ == "__main__":
    main()
