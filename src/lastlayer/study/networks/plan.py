"""A block [[replay]] of a plan: networks trained end to end, in every combination it lists."""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from lastlayer.catalogue import HEADS, split_name
from lastlayer.features.backbones.preparation import AUTHORS
from lastlayer.names import look_up
from lastlayer.study.networks.run import NetworkRun
from lastlayer.study.plan_fields import Many, Rate, Scenarios, Seeds, Strict, one_of
from lastlayer.training.replay import ReplayRules, TrainingOptions
from lastlayer.training.replay.learner import OPTIMIZERS
from lastlayer.training.replay.options import PRECISIONS
from lastlayer.training.replay.start import STARTS


def _layer(value: Any) -> str:
    """Check the name of a layer with its mask; a head without gradients cannot train a network."""
    if not isinstance(value, str):
        raise ValueError(f"expected the name of a layer, got {value!r}")
    layers = {name: card for name, card in HEADS.items() if card.by_gradient}
    look_up(split_name(value)[0], layers, "layer trained by gradient")
    return value


MOST = 1_000_000  # epochs, images of a class, images of a batch
Count = Annotated[int, Field(ge=1, le=MOST)]
Balance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Replay(Strict):
    """A block of a plan: every combination of what it lists is a network."""

    dataset: Annotated[str, one_of(AUTHORS, "data set of images of one size")]
    scenario: Scenarios
    heads: Annotated[
        tuple[Annotated[str, PlainValidator(_layer)], ...], Many, Field(min_length=1)
    ] = ("linear", "linear+group", "weight_norm", "weight_norm+group")
    balance: Annotated[tuple[Balance, ...], Many, Field(min_length=1)] = (0.01, 0.1, 0.5, 1.0)
    seeds: Seeds | None = None  # None: the plan's
    epochs: Count = ReplayRules.epochs
    per_class: Count = ReplayRules.per_class
    batch_size: Annotated[int, Field(ge=2, le=MOST)] = ReplayRules.batch_size
    optimizer: Annotated[str, one_of(OPTIMIZERS, "optimizer")] = ReplayRules.optimizer
    lr: Rate = ReplayRules.lr
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    start: Annotated[str, one_of(STARTS, "start")] = TrainingOptions.start
    precision: Annotated[str, one_of(PRECISIONS, "precision")] = TrainingOptions.precision

    def count(self, seeds: tuple[int, ...]) -> int:
        """Return how many networks it makes; ``seeds`` are the plan's."""
        kinds = self.scenario, self.balance, self.heads, self.seeds or seeds
        return prod(map(len, kinds))

    def runs(self, seeds: tuple[int, ...]) -> Iterator[NetworkRun]:
        """Yield every combination; ``seeds`` are the plan's."""
        rules = ReplayRules(self.epochs, self.batch_size, self.per_class, self.optimizer, self.lr)
        options = TrainingOptions(self.clip, self.start, self.precision)
        kinds = product(self.scenario, self.balance, self.heads, self.seeds or seeds)
        for scenario, balance, head, seed in kinds:
            layer, mask = split_name(head)
            yield NetworkRun(self.dataset, scenario, layer, mask, balance, seed, rules, options)
