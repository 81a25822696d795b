"""A run of a network end to end, and the block [[replay]] of a plan that lists some."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import torch
from pydantic import Field, PlainValidator
from torch import Tensor

from lastlayer.catalogue.head_cards import HEADS, full_name, split_name
from lastlayer.core.names import look_up
from lastlayer.data.features import Origin
from lastlayer.errors import OptionError, PlanError
from lastlayer.extraction.backbones.preparation import AUTHORS
from lastlayer.extraction.datasets.cifar import HOME
from lastlayer.extraction.datasets.images import Images, ImageSet
from lastlayer.extraction.datasets.readers import read_images
from lastlayer.replay.training import ReplayRules, TrainingOptions
from lastlayer.replay.training.image_pool import ImagePool, make_image_pool
from lastlayer.replay.training.learner import OPTIMIZERS, Network
from lastlayer.replay.training.replay_stream import check_tasks
from lastlayer.replay.training.training_options import PRECISIONS, STARTS
from lastlayer.results.columns import Kind
from lastlayer.results.store import Columns
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.plan_fields import Many, Rate, Scenarios, Seeds, Strict, one_of
from lastlayer.study.prepare import Prepared
from lastlayer.study.run import digest_of

BACKBONE = "resnet20"
MOST = 1_000_000  # epochs, images of a class, images of a batch
Count = Annotated[int, Field(ge=1, le=MOST)]
Balance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ImageData(ImageSet):
    """A data set of small images, read whole: their pixels are tensors, not files."""

    @cached_property
    def fingerprint(self) -> str:
        """The digest of its content; a large one is read once."""
        return self.digest

    @property
    def origin(self) -> Origin:
        """Where they come from."""
        return Origin(self.name, BACKBONE, normalisation="authors")

    @property
    def in_features(self) -> int:
        """Pixels times channels."""
        return _pixels(self.train)[0].numel()

    def pool(self, label: str, device: torch.device) -> ImagePool:
        """Bring the images and their classes to a device, normalised as in the study."""
        mean, std = AUTHORS[self.name]
        x, test_x = _pixels(self.train), _pixels(self.test)
        y, test_y = self.train.labels[label], self.test.labels[label]
        return make_image_pool(x, y, test_x, test_y, mean=mean, std=std).to(device)


def _pixels(images: Images) -> Tensor:
    """Return the images of a data set that fits in memory."""
    return cast(Tensor, images.x)


def read_image_data(dataset: str, root: Path | None) -> ImageData:
    """Read the images of a data set from the folder of its official files."""
    look_up(dataset, AUTHORS, "data set of images of one size")
    if root is None:
        raise OptionError(
            f"networks are trained on the images themselves: pass the folder of {dataset}'s "
            "official files with --root DIR (python or binary version, unpacked there, "
            f"from {HOME})"
        )
    return ImageData(**vars(read_images(dataset, root)))


def setting_of(balance: float, rules: ReplayRules, options: TrainingOptions) -> str:
    """Return a network's setting as text: the balance, and whatever differs from the default.

    >>> setting_of(0.1, ReplayRules(epochs=20), TrainingOptions(clip=10))
    'balance 0.1, epochs 20, clip 10'
    """
    usual = asdict(ReplayRules())
    other = {name: value for name, value in asdict(rules).items() if value != usual[name]}
    words = (f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
             for name, value in (other | options.decisive()).items())  # fmt: skip
    return ", ".join([f"balance {balance:g}", *words])


@dataclass(frozen=True)
class NetworkRun:
    """One network on one stream of images.

    >>> print(NetworkRun("cifar10", ScenarioSpec("cifar10"), "weight_norm", "group", balance=0.1))
    cifar10 images cifar10 weight_norm+group balance=0.1 seed=0
    """

    kind: ClassVar[Kind] = "network"
    method: ClassVar[int] = 1  # raised whenever the same run on the same images gives other numbers

    dataset: str
    scenario: ScenarioSpec
    head: str  # the layer on top
    mask: str = "none"
    balance: float = 1.0
    seed: int = 0  # of everything drawn at random, and of the order of the tasks
    rules: ReplayRules = field(default_factory=ReplayRules)
    options: TrainingOptions = field(default_factory=TrainingOptions)

    def __post_init__(self) -> None:
        """Check the names and numbers."""
        self.network  # noqa: B018  (checks them)

    @property
    def features(self) -> str:
        """The name of the data."""
        return f"{self.dataset} images"

    @property
    def order(self) -> int:
        """The order of the tasks."""
        return self.seed

    @property
    def head_name(self) -> str:
        """The layer with its mask, as it is typed."""
        return full_name(self.head, self.mask)

    @property
    def settings(self) -> Columns:
        """The columns that only networks have; their layers are the paper's under any preset."""
        options = {name: getattr(self.options, name) for name in ("clip", "start", "precision")}
        return {"preset": "paper", "balance": self.balance, **asdict(self.rules), **options}

    @property
    def place(self) -> str:
        """What it is compared on: the same for all runs of one comparison."""
        return (
            f"{self.features} {self.scenario} {setting_of(self.balance, self.rules, self.options)}"
        )

    @property
    def candidate(self) -> str:
        """What is compared: the layer and its setting."""
        return self.head_name

    @property
    def network(self) -> Network:
        """What is trained."""
        return Network(self.head, self.mask, self.balance, self.seed)

    def digest(self, fingerprint: str) -> str:
        """Name the run's numbers: a SHA-256 of all that decides them.

        The fingerprint stands for the images, so renaming these changes nothing.
        """
        document = asdict(self) | {"dataset": fingerprint, "backbone": BACKBONE}
        del document["options"]  # a run without any is named as it was before there were some
        document |= self.options.decisive()
        document |= {"scenario": self.scenario.signature, "replay": self.method}
        return digest_of(document)

    def __str__(self) -> str:
        what = f"{self.features} {self.scenario} {self.head_name}"
        return f"{what} balance={self.balance:g} seed={self.seed}"


def _layer(value: Any) -> str:
    """Check the name of a layer with its mask; a head without gradients cannot train a network."""
    if not isinstance(value, str):
        raise ValueError(f"heads must be names of layers, got {value!r}")
    layers = {name: card for name, card in HEADS.items() if card.by_gradient}
    look_up(split_name(value)[0], layers, "layer trained by gradient")
    return value


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

    def prepare(self, seeds: tuple[int, ...], root: Path | None, ready: Prepared) -> None:
        """Add the networks, and read their images; refuse tasks that replay is not defined for."""
        for run in self.runs(seeds):
            data = ready.data.get(run.features) or read_image_data(run.dataset, root)
            if not isinstance(data, ImageData):
                raise PlanError(f"'{run.features}' is also the name of features: rename those")
            ready.data[run.features] = data
            scenario = run.scenario.build(data, run.order)
            check_tasks(scenario.tasks, data.train.labels[scenario.label], run.rules.per_class)
            ready.add(run, scenario.label)
