"""What heads are trained and tested on, tensors and row indices, and how rows are shown to them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lastlayer.heads import Head

BATCH_SIZE = 264  # the authors' code
EPOCHS, STEPS, STEPS_OF_TASK = 5, 200, 10  # at least


def shuffled_batches(n: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield one epoch of positions 0…n−1 in random order; the last batch may be smaller.

    >>> [batch.numel() for batch in shuffled_batches(7, 3, torch.Generator().manual_seed(0))]
    [3, 3, 1]
    """
    yield from torch.randperm(n, generator=generator).split(batch_size)


def epochs_for(tasks: Sequence[Tensor], batch_size: int = BATCH_SIZE) -> int:
    """Return the epochs of a task: five, or more where that makes only a few steps.

    >>> [epochs_for([torch.zeros(n)] * tasks) for n, tasks in ((1200, 10), (40, 10), (80, 150))]
    [5, 20, 10]
    """
    steps = [math.ceil(len(rows) / batch_size) for rows in tasks if len(rows)]
    in_all, least = sum(steps), sum(steps) / max(len(steps), 1)
    return max(EPOCHS, math.ceil(STEPS / max(in_all, 1)), math.ceil(STEPS_OF_TASK / max(least, 1)))


def learn_rows(head: Head, z: Tensor, y: Tensor, batches: Iterable[Tensor]) -> None:
    """Show batches of rows of features z (n, h) to a head, each a change of its own."""
    for rows in batches:
        if len(rows):
            head.observe(z[rows].float(), y[rows])


@dataclass(frozen=True)
class Pool:
    """The samples that tasks draw from, and the test samples that all heads are scored on."""

    z: Tensor  # (n, h)
    y: Tensor  # (n,) int64 below n_classes
    test_z: Tensor  # (m, h)
    test_y: Tensor  # (m,)
    n_classes: int
    test_group: Tensor | None = None  # (m,) the test task of each test sample; None: one for all

    @property
    def n_groups(self) -> int:
        """The number of test tasks."""
        return 1 if self.test_group is None else int(self.test_group.max()) + 1

    def test_columns(self) -> Tensor:
        """Return 0/1 columns (m, N + groups): a sample's class and its test task."""
        group = torch.zeros_like(self.test_y) if self.test_group is None else self.test_group
        columns = torch.zeros(len(self.test_y), self.n_classes + self.n_groups)
        rows = torch.arange(len(self.test_y))
        columns[rows, self.test_y] = 1
        columns[rows, self.n_classes + group] = 1
        return columns

    def to(self, device: torch.device) -> "Pool":
        """Bring the samples to a device, features widened to float32."""
        return Pool(
            self.z.to(device, torch.float32),
            self.y.to(device),
            self.test_z.to(device, torch.float32),
            self.test_y.to(device),
            self.n_classes,
            None if self.test_group is None else self.test_group.to(device),
        )


@dataclass(frozen=True)
class Schedule:
    """The tasks in the order in which they arrive, and the seed of their shuffling."""

    tasks: tuple[Tensor, ...]  # training rows of each task
    seed: int = 0
    repeat: int = 1  # how often a gradient head goes through the task in one epoch


@dataclass(frozen=True)
class Rules:
    """How tasks are shown to heads; the defaults are those of the paper's code."""

    epochs: int = 5
    batch_size: int = BATCH_SIZE
    skip_single: bool = True  # a batch of one sample is skipped
    reseed: bool = True  # a task is shuffled in the same way wherever it comes

    def generator(self, seed: int, place: int) -> torch.Generator:
        """Return what shuffles the task at this place of a schedule."""
        return torch.Generator().manual_seed(seed if self.reseed else seed + place)

    def batches(self, n: int, generator: torch.Generator) -> list[Tensor]:
        """Return the positions of one epoch's mini-batches of ``n`` samples."""
        least = 2 if self.skip_single else 1
        whole = shuffled_batches(n, self.batch_size, generator)
        return [batch for batch in whole if len(batch) >= least]


@dataclass(frozen=True)
class Vectors:
    """The output vectors of a linear head after each task; its logit i is gain_i · A_i·z + b_i.

    A factor shared by all logits of a sample is left out: it does not change the prediction.
    """

    weight: Tensor  # (T, N, h) the rows A as they are learned
    gain: Tensor  # (T, N) such as 1/‖A_i‖
    bias: Tensor  # (T, N); −∞: the class cannot win yet


@dataclass(frozen=True)
class Score:
    """How many test samples one head got right: before training, then after each epoch."""

    by_class: Tensor  # (1 + tasks · epochs, N) counts; −1: it could not predict
    by_group: Tensor  # (1 + tasks · epochs, groups)
    diverged: int = -1  # the step, from 1, at which training diverged
    vectors: Vectors | None = None  # of linear heads, where they are asked for


@dataclass(frozen=True, eq=False)
class Verdict:
    """What one candidate has shown on rows held out of a stream, in one split or in several."""

    head: str  # with its mask
    answers: tuple[Tensor, ...]  # of each split, (m,) the class of each held-out row; −1: none
    right: Tensor  # (checkpoints,) right answers on the way, over the splits that show it; −1: none
    lr: float | None = None  # the rate to train it with; None: it needs none
    latency: float = math.nan  # seconds that one prediction takes, the median
    vectors: Vectors | None = None  # of the first split, at the checkpoints
    learned: Head | None = None  # itself, where it is small and still to be timed
