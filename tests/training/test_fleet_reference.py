"""The fleet against plain PyTorch: modules, autograd, torch.optim.SGD and clip_grad_norm_."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize, one_hot

import lastlayer as ll
from lastlayer.heads.gradient.initial import initial_parameters
from lastlayer.layers import LAYERS, MASKS
from lastlayer.training.batches import shuffled_batches
from lastlayer.training.fleet import Member, launch
from lastlayer.training.lockstep import epoch_of_batches
from lastlayer.training.pool import Pool, Rules, Stream
from lastlayer.training.stepper import Stepper

RULES = Rules(epochs=1)  # five, as in the study, agree as well and take five times as long
SEED = 1
COMBINATIONS = [(layer, mask) for layer in LAYERS for mask in MASKS]
Parts = dict[str, Tensor]

# Written anew, in the terms of the paper: nothing of lastlayer.layers is used.
LOGITS: dict[str, Callable[[Tensor, Parts], Tensor]] = {
    "linear": lambda z, p: linear(z, p["weight"], p["bias"]),
    "linear_no_bias": lambda z, p: linear(z, p["weight"]),
    "weight_norm": lambda z, p: linear(z, normalize(p["weight"])),
    "original_weight_norm": lambda z, p: linear(z, normalize(p["weight"])) * p["gamma"],
    "cosine": lambda z, p: linear(normalize(z), normalize(p["weight"])),
}


class Reference(nn.Module):
    def __init__(self, layer: str, mask: str) -> None:
        super().__init__()
        self.logits, self.mask = LOGITS[layer], mask
        start = initial_parameters(layer, 10, 64, "paper", SEED, mask)
        self.parts = nn.ParameterDict({name: nn.Parameter(value) for name, value in start.items()})

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        logits = self.logits(z, dict(self.parts))
        keep = torch.ones_like(logits)
        if self.mask == "single":
            keep = one_hot(y, 10)
        if self.mask == "group":
            keep = one_hot(y, 10).amax(dim=0)
        return cross_entropy(logits * keep, y)


@pytest.fixture(scope="module")
def pool() -> Pool:
    data = ll.load_features("cifar10")
    return Pool(data.train.z.float(), data.train.y, data.test.z.float(), data.test.y, 10)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return Stream(ll.make_scenario("cifar10", ll.load_features("cifar10"), order=SEED).tasks, SEED)


@pytest.fixture(scope="module")
def trained(pool: Pool, stream: Stream) -> Parts:
    """All combinations at once, through the five tasks."""
    fleet = launch(pool, [[Member(*names, seed=SEED) for names in COMBINATIONS]], "paper")
    take_step = Stepper(fleet, pool)
    for task in range(len(stream.tasks)):
        generators = [torch.Generator().manual_seed(stream.seed)]
        for _ in range(RULES.epochs):
            for batch in epoch_of_batches([stream], task, RULES, generators, pool.z.device):
                take_step(*batch)
    return fleet.parameters


@pytest.mark.parametrize(("layer", "mask"), COMBINATIONS)
def test_five_tasks_end_at_the_same_weights(
    pool: Pool, stream: Stream, trained: Parts, layer: str, mask: str
) -> None:
    reference = Reference(layer, mask)
    rate = 0.01 if layer.startswith("linear") else 0.1
    optimizer = torch.optim.SGD(reference.parameters(), lr=rate, momentum=0.9)
    for rows in stream.tasks:
        generator = torch.Generator().manual_seed(stream.seed)
        for _ in range(RULES.epochs):
            for positions in shuffled_batches(len(rows), RULES.batch_size, generator):
                optimizer.zero_grad()
                reference.loss(pool.z[rows[positions]], pool.y[rows[positions]]).backward()
                nn.utils.clip_grad_norm_(reference.parameters(), max_norm=10)
                optimizer.step()
    member = COMBINATIONS.index((layer, mask))
    for name, expected in reference.parts.items():
        torch.testing.assert_close(trained[name][0, member], expected, atol=1e-4, rtol=1e-4)
