"""A run of a head: everything that decides its numbers, besides the data themselves."""

from dataclasses import dataclass, fields
from numbers import Real
from typing import ClassVar

from lastlayer.arguments import expect, whole
from lastlayer.catalogue import HEADS, full_name, split_name
from lastlayer.errors import OptionError
from lastlayer.heads.head import Preset
from lastlayer.results.columns import Kind
from lastlayer.results.store import Columns
from lastlayer.study.run import digest_of
from lastlayer.study.scenario_spec import AnyScenario, GivenScenario, ScenarioSpec

MOST_DRAWN = 10_000_000  # samples of a subset: beyond it, only memory is gained
MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Run:
    """One head on one stream of data.

    >>> run = Run("cifar10", ScenarioSpec("incremental", tasks=5), "cosine", "single", order=3)
    >>> print(run)
    cifar10 incremental:5 cosine+single exact lr=0.1 order=3 seed=0
    """

    kind: ClassVar[Kind] = "head"
    method: ClassVar[int] = 1  # raised whenever the same run on the same data gives other numbers

    features: str  # the name of the data
    scenario: AnyScenario
    head: str
    mask: str = "none"
    preset: Preset = "exact"
    lr: float | None = None  # None becomes the head's own; it stays for a head without gradient
    order: int = 0  # of the tasks
    seed: int = 0  # of the first weights, of shuffling, and of the subset
    subset: int | None = None  # how many samples are drawn, with replacement; None: all

    def __post_init__(self) -> None:
        """Check what can be checked without data, and write the learning rate out."""
        for name in ("features", "head", "mask", "preset"):
            expect(getattr(self, name), str, name, "text")
        expect(self.scenario, (ScenarioSpec, GivenScenario), "scenario", "a ScenarioSpec")
        expect(self.lr, (Real, type(None)), "lr", "a learning rate")
        base, _ = split_name(self.head, self.mask)
        numbers = {
            name: whole(getattr(self, name), name, 0, MOST_SEED) for name in ("order", "seed")
        }
        if self.subset is not None:
            numbers["subset"] = whole(self.subset, "subset", 1, MOST_DRAWN)
        for name, value in {"head": base, "lr": _rate(base, self.lr), **numbers}.items():
            object.__setattr__(self, name, value)
        if self.preset not in ("exact", "paper"):
            raise OptionError(f"expected preset 'exact' or 'paper', got '{self.preset}'")
        if self.subset is not None and self.scenario.kind != "iid":
            raise OptionError(
                f"expected a subset of the scenario 'iid' only, got one of '{self.scenario}'"
            )

    @property
    def head_name(self) -> str:
        """The head with its mask, as it is typed."""
        return full_name(self.head, self.mask)

    @property
    def settings(self) -> Columns:
        """The columns that only runs of heads have, and the learning rate."""
        return {"preset": self.preset, "lr": self.lr, "subset": self.subset}

    @property
    def place(self) -> str:
        """What it can be compared on."""
        some = "" if self.subset is None else f" {self.subset} samples"
        return f"{self.features} {self.scenario}{some} {self.preset}"

    @property
    def candidate(self) -> str:
        """What is compared there."""
        return self.head_name if self.lr is None else f"{self.head_name} at {self.lr:g}"

    @property
    def by_gradient(self) -> bool:
        """Whether the head is trained by gradient, epoch after epoch."""
        return HEADS[self.head].by_gradient

    def digest(self, fingerprint: str) -> str:
        """Name the run's numbers: a SHA-256 of all that decides them.

        Args:
            fingerprint: of the data. It stands for them: what they are called does not count.
        """
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        document |= {"features": fingerprint, "scenario": self.scenario.signature}
        return digest_of(document | {"method": self.method})

    def __str__(self) -> str:
        rate = "" if self.lr is None else f" lr={self.lr:g}"
        some = "" if self.subset is None else f" subset={self.subset}"
        what = f"{self.features} {self.scenario} {self.head_name} {self.preset}"
        return f"{what}{rate} order={self.order} seed={self.seed}{some}"


def _rate(head: str, lr: float | None) -> float | None:
    """Give the learning rate in use, so that a run has one name only."""
    if not HEADS[head].by_gradient:
        if lr is not None:
            raise OptionError(f"expected no learning rate for '{head}', got {lr}")
        return None
    return HEADS[head].rate(lr)
