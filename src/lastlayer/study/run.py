"""A run: everything that decides its numbers, besides the data themselves."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

from lastlayer.catalogue import HEADS, split_name
from lastlayer.errors import OptionError
from lastlayer.heads.head import Preset
from lastlayer.study.scenario_spec import ScenarioSpec

METHOD = 1  # raised whenever the same run on the same data would give other numbers


@dataclass(frozen=True)
class Run:
    """One head on one stream of data.

    >>> run = Run("cifar10", ScenarioSpec("incremental", tasks=5), "cosine", "single", order=3)
    >>> print(run)
    cifar10 incremental:5 cosine+single exact lr=0.1 order=3 seed=0
    """

    features: str  # the name of the data
    scenario: ScenarioSpec
    head: str
    mask: str = "none"
    preset: Preset = "exact"
    lr: float | None = None  # None becomes the head's own; it stays for a head without gradient
    order: int = 0  # of the tasks
    seed: int = 0  # of the first weights, of shuffling, and of the subset
    subset: int | None = None  # how many samples are drawn, with replacement; None: all

    def __post_init__(self) -> None:
        """Check what can be checked without data, and write the learning rate out."""
        base, _ = split_name(self.head, self.mask)
        object.__setattr__(self, "head", base)
        object.__setattr__(self, "lr", _rate(base, self.lr))
        if self.preset not in ("exact", "paper"):
            raise OptionError(f"expected preset 'exact' or 'paper', got '{self.preset}'")
        if min(self.order, self.seed) < 0:
            raise OptionError(f"expected order and seed from 0, got {self.order} and {self.seed}")
        if self.subset is not None and (self.subset < 1 or self.scenario.kind != "iid"):
            raise OptionError(
                "expected a subset of at least 1 sample, and of the scenario 'iid', "
                f"got {self.subset} of '{self.scenario}'"
            )

    @property
    def head_name(self) -> str:
        """The head with its mask, as it is typed."""
        return self.head if self.mask == "none" else f"{self.head}+{self.mask}"

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
        document = asdict(self) | {"features": fingerprint, "method": METHOD}
        document["scenario"] = str(self.scenario)
        return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

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
