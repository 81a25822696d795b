"""Clipping and first weights: against a plain loop, and as the authors' code has them."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lastlayer.errors import OptionError, UnknownNameError
from lastlayer.layers import LAYERS
from lastlayer.replay.training import AUTHORS, Network, ReplayRules, TrainingOptions, train_replay
from lastlayer.replay.training.learner import Learner
from lastlayer.replay.training.replay_stream import START, ReplayStream, generator_for
from lastlayer.replay.training.training_options import AuthorsCosine, AuthorsWeightNorm
from small_images import SmallNet, pairs, small_pool

RULES = ReplayRules(epochs=2, per_class=5)


def plain_network(network: Network, start: str) -> tuple[nn.Module, nn.ParameterDict]:
    """Draw the first weights in the order in which a network is made, in plain PyTorch."""
    torch.manual_seed(generator_for(START, network.seed).initial_seed())
    backbone = SmallNet()
    if start == "authors":  # fan_out: 5 channels of 3 × 3; √2 for ReLU
        backbone.conv.weight.data.normal_(0, math.sqrt(2 / 45))
    head = nn.ParameterDict({"weight": torch.empty(6, 5)})
    if network.layer == "weight_norm" and start == "authors":
        head["weight"].data.uniform_(-1 / math.sqrt(5), 1 / math.sqrt(5))
    else:
        head["weight"].data.normal_(0, math.sqrt(2 / 5))
    if network.layer == "linear":
        head["bias"] = torch.empty(6).uniform_(-1 / math.sqrt(5), 1 / math.sqrt(5))
    return backbone.double(), head.double()


def plain_logits(network: Network, start: str, z: Tensor, head: nn.ParameterDict) -> Tensor:
    if network.layer == "linear":
        return functional.linear(z, head["weight"], head["bias"])
    eps = 1e-5 if start == "authors" else 0
    return z @ (head["weight"] / (head["weight"].pow(2).sum(1, keepdim=True) + eps).sqrt()).T


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("start", ["pytorch", "authors"])
@pytest.mark.parametrize("clip", [None, 0.5, 10.0])
@pytest.mark.parametrize("layer", ["linear", "weight_norm"])
def test_training_with_options_is_the_plain_loop_of_pytorch(
    layer: str, clip: float | None, start: str, grouped: bool
) -> None:
    network, pool = Network(layer, "group", 0.5, 3), small_pool(dtype=torch.float64)
    tasks, options = pairs(pool), TrainingOptions(clip, start, grouped=grouped)
    ends = list(train_replay(pool, tasks, [network], SmallNet, RULES, options))
    backbone, head = plain_network(network, start)
    parameters = [*backbone.parameters(), *head.parameters()]
    stream = ReplayStream(tasks, pool.y, 5, network.balance, network.seed)
    clipped, steps = 0, 0
    for task in range(len(tasks)):
        adam = torch.optim.Adam(parameters, lr=1e-3)
        for epoch in range(2):
            for rows in stream.order(task, epoch).split(8):
                if len(rows) == 1:
                    continue
                z = backbone((pool.x[rows].double() / 255 - 0.5) / 0.25)
                y = pool.y[rows]
                present = torch.zeros(6, dtype=torch.float64).index_fill(0, y, 1)
                logits = plain_logits(network, start, z, head) * present
                adam.zero_grad()
                functional.cross_entropy(logits, y).backward()
                norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
                if clip is not None and norm > clip:
                    clipped += 1
                    for p in parameters:
                        p.grad *= clip / (norm + 1e-6)
                adam.step()
                steps += 1
        assert ends[task].layer.keys() == dict(head).keys()
        for name, part in ends[task].layer.items():
            torch.testing.assert_close(part, head[name].data, rtol=1e-9, atol=1e-12)
        backbone.eval()
        with torch.no_grad():
            z = backbone((pool.test_x.double() / 255 - 0.5) / 0.25)
        backbone.train()
        torch.testing.assert_close(ends[task].features, z, rtol=1e-9, atol=1e-12)
    assert steps >= 24
    if clip == 0.5:
        assert clipped > 3  # it was put to the test


def learner(layer: str, options: TrainingOptions, seed: int = 0) -> Learner:
    return Learner(Network(layer, seed=seed), small_pool(), SmallNet, "adam", 1e-3, options)


def test_layers_and_masks_of_a_seed_start_from_one_backbone_of_the_authors() -> None:
    starts = [learner(layer, AUTHORS).net[0].conv.weight for layer in LAYERS]
    assert all(other.equal(starts[0]) for other in starts)
    assert not starts[0].equal(learner("linear", TrainingOptions()).net[0].conv.weight)
    assert not starts[0].equal(learner("linear", AUTHORS, seed=1).net[0].conv.weight)


def test_convolutions_of_the_authors_start_with_the_deviation_of_fan_out() -> None:
    wide = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 400, 3, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    made = Learner(Network(), small_pool(), wide, "adam", 1e-3, AUTHORS)
    kernels = made.net[0][0].weight.detach()
    assert float(kernels.std()) == pytest.approx(math.sqrt(2 / (400 * 9)), rel=0.05)
    assert float(kernels.abs().max()) > 2.5 * float(kernels.std())  # normal, not uniform


@pytest.mark.parametrize("layer", [AuthorsWeightNorm, AuthorsCosine])
def test_layers_of_the_authors_are_finite_at_zero_and_near_ours(layer) -> None:
    torch.manual_seed(0)
    own = layer(64, 10)
    assert float(own.weight.detach().abs().max()) <= 1 / 8
    z = torch.randn(7, 64)
    ours = LAYERS["weight_norm" if layer is AuthorsWeightNorm else "cosine"](64, 10)
    ours.load_state_dict(own.state_dict())
    torch.testing.assert_close(own(z), ours(z), rtol=1e-4, atol=1e-5)
    own.weight.data.zero_()
    own(z).sum().backward()
    assert own(z).count_nonzero() == 0
    assert bool(own.weight.grad.isfinite().all())


def test_options_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="clip must be above 0, or None, got 0"):
        TrainingOptions(clip=0)
    with pytest.raises(UnknownNameError, match="unknown start 'author'; did you mean 'authors'"):
        TrainingOptions(start="author")
    with pytest.raises(UnknownNameError, match="unknown precision 'bfloat'"):
        TrainingOptions(precision="bfloat")
    with pytest.raises(OptionError, match="save_every must be at least 1, got 0"):
        TrainingOptions(save_every=0)
    pool = small_pool(dtype=torch.float64)
    with pytest.raises(OptionError, match=r"'bfloat16' needs float32 images, got torch\.float64"):
        train_replay(pool, pairs(pool), [], SmallNet, RULES, TrainingOptions(precision="bfloat16"))


@pytest.mark.parametrize("other", [AUTHORS, TrainingOptions(precision="tf32")])
@pytest.mark.parametrize("turned", [False, True])
def test_a_checkpoint_of_other_options_is_refused_either_way(
    tmp_path: Path, other: TrainingOptions, turned: bool
) -> None:
    pool, usual = small_pool(), TrainingOptions()
    first, second = (other, usual) if turned else (usual, other)
    given = pool, pairs(pool), [Network()], SmallNet, RULES
    list(train_replay(*given, first, folder=tmp_path))
    with pytest.raises(OptionError, match="belongs to another setting"):
        list(train_replay(*given, second, folder=tmp_path))


def test_a_balance_of_1_is_one_of_1_0() -> None:
    assert str(Network("linear", "none", 1, 0)) == str(Network("linear", "none", 1.0, 0))
