"""The fleet against plain PyTorch: modules, autograd, torch.optim.SGD and clip_grad_norm_.

In float64: over hundreds of steps float32 drifts apart by its rounding alone (γ by 1e-3, started
1e-7 apart), so that a comparison would tell one CPU from another and hide small faults.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize, one_hot

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.evaluate.fleet import Member, Stepper, epoch_of_batches, launch
from lastlayer.evaluate.pool import Pool, Rules, Schedule, shuffled_batches
from lastlayer.heads.gradient.members import initial_parameters
from lastlayer.layers import MASKS

SEED = 1
VARIANTS = [  # layer, start, gain
    ("linear", "uniform", None),
    ("linear", "normal", None),
    ("linear_no_bias", "uniform", None),
    ("linear_no_bias", "normal", None),
    ("weight_norm", None, "unit"),
    ("weight_norm", None, "frozen"),
    ("original_weight_norm", "uniform", None),
    ("original_weight_norm", "normal", None),
    ("cosine", None, None),
]
MEMBERS = [
    Member(layer, mask, None, SEED, start, gain)
    for layer, start, gain in VARIANTS
    for mask in MASKS
]
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
    def __init__(self, member: Member) -> None:
        super().__init__()
        frozen = member.gain == "frozen"
        self.logits = LOGITS["original_weight_norm" if frozen else member.layer]
        self.mask = member.mask
        start = initial_parameters(member.layer, 10, 64, "paper", SEED, member.start, member.gain)
        self.parts = nn.ParameterDict(
            {name: nn.Parameter(value.double()) for name, value in start.items()}
        )
        if frozen:
            self.parts["gamma"].requires_grad_(False)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        logits = self.logits(z, dict(self.parts))
        keep = torch.ones_like(logits)
        if self.mask == "single":
            keep = one_hot(y, 10)
        if self.mask == "group":
            keep = one_hot(y, 10).amax(dim=0)
        return cross_entropy(logits * keep, y)


@pytest.fixture(scope="module", autouse=True)
def _doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(
    scope="module", params=["some rows", pytest.param("all rows", marks=pytest.mark.slow)]
)
def data(request: pytest.FixtureRequest, cifar10: ll.Features) -> ll.Features:
    return cifar10 if request.param == "some rows" else ll.load_features("cifar10")


@pytest.fixture(scope="module")
def rules(data: ll.Features) -> Rules:
    """Five epochs of some rows; of all, one: five agree as well and take five times as long."""
    return Rules(epochs=5 if len(data.train) < 10_000 else 1)


@pytest.fixture(scope="module")
def pool(data: ll.Features) -> Pool:
    return Pool(data.train.z.double(), data.train.y, data.test.z.double(), data.test.y, 10)


@pytest.fixture(scope="module")
def stream(data: ll.Features) -> Schedule:
    return Schedule(ll.make_scenario("cifar10", data, order=SEED).tasks, SEED)


@pytest.fixture(scope="module")
def trained(pool: Pool, stream: Schedule, rules: Rules) -> Parts:
    """All of them at once, through the five tasks."""
    fleet = launch(pool, [MEMBERS], "paper")
    take_step = Stepper(fleet, pool)
    for task in range(len(stream.tasks)):
        generators = [torch.Generator().manual_seed(stream.seed)]
        for _ in range(rules.epochs):
            for batch in epoch_of_batches([stream], task, rules, generators, pool.z.device):
                take_step(*batch)
    return fleet.parameters


@pytest.mark.parametrize(
    "number",
    range(len(MEMBERS)),
    ids=lambda n: "-".join(
        str(part)
        for part in (MEMBERS[n].layer, MEMBERS[n].mask, MEMBERS[n].start, MEMBERS[n].gain)
        if part
    ),
)
def test_five_tasks_end_at_the_same_weights(
    pool: Pool, stream: Schedule, rules: Rules, trained: Parts, number: int
) -> None:
    reference = Reference(MEMBERS[number])
    rate = 0.01 if MEMBERS[number].layer.startswith("linear") else 0.1
    learned = [part for part in reference.parameters() if part.requires_grad]
    optimizer = torch.optim.SGD(learned, lr=rate, momentum=0.9)
    for rows in stream.tasks:
        generator = torch.Generator().manual_seed(stream.seed)
        for _ in range(rules.epochs):
            for positions in shuffled_batches(len(rows), rules.batch_size, generator):
                optimizer.zero_grad()
                reference.loss(pool.z[rows[positions]], pool.y[rows[positions]]).backward()
                nn.utils.clip_grad_norm_(learned, max_norm=10)
                optimizer.step()
    for name, expected in reference.parts.items():
        torch.testing.assert_close(
            trained[name][0, number], expected.detach(), atol=1e-9, rtol=1e-9
        )


def test_the_members_are_every_layer_with_every_choice() -> None:
    """A layer, start or gain that is added must be put into the comparison too."""
    choices = {
        (name, start, gain)
        for name, card in HEADS.items()
        if card.by_gradient
        for start in card.starts or (None,)
        for gain in card.gains or (None,)
    }
    assert choices == set(VARIANTS)


def test_a_frozen_gain_stays_what_it_was(trained: Parts) -> None:
    frozen = [n for n, member in enumerate(MEMBERS) if member.gain == "frozen"]
    first = initial_parameters("weight_norm", 10, 64, "paper", SEED, gain="frozen")
    for number in frozen:
        assert torch.equal(trained["gamma"][0, number], first["gamma"])
        assert not torch.equal(trained["weight"][0, number], first["weight"])
