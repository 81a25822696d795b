"""A run of a head: everything that decides its numbers but the data; and what every run has."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from lastlayer.catalogue.head_cards import card_of, full_name, split_name
from lastlayer.core.checks import expect, whole
from lastlayer.core.progress import Tell
from lastlayer.errors import OptionError
from lastlayer.evaluate.pool import BATCH_SIZE
from lastlayer.heads.head import Preset
from lastlayer.results.columns import Kind
from lastlayer.results.store import Columns
from lastlayer.scenarios.spec import AnyScenario, GivenScenario, ScenarioSpec

MOST_DRAWN = 10_000_000  # samples of a subset: beyond it, only memory is gained
MOST_SEED = 2**32 - 1
MOST_BATCH = 1_000_000


class AnyRun(Protocol):
    """A run: everything that decides its numbers, besides the data themselves."""

    @property
    def kind(self) -> Kind:
        """What it is a run of: a head or a network."""

    @property
    def method(self) -> int:
        """Raised whenever the same run on the same data would give other numbers."""

    @property
    def features(self) -> str:
        """The name of the data."""

    @property
    def scenario(self) -> AnyScenario:
        """The stream of tasks."""

    @property
    def head(self) -> str:
        """The head, or the layer on top."""

    @property
    def mask(self) -> str:
        """Its mask."""

    @property
    def order(self) -> int:
        """The order of the tasks."""

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn at random."""

    @property
    def settings(self) -> Columns:
        """The columns that only its kind of run has."""

    @property
    def place(self) -> str:
        """What it is compared on: the same for all runs of one comparison."""

    @property
    def candidate(self) -> str:
        """What is compared: the head or layer and its settings."""

    def digest(self, fingerprint: str) -> str:
        """Name the run's numbers: a SHA-256 of all that decides them."""


@dataclass(frozen=True)
class Work:
    """Runs of one kind to be made, and what to make them with."""

    # Those that are finished, too: what is made at once depends on all of them.
    runs: Sequence[Any]
    data: Mapping[str, Any]
    done: Callable[[Any], bool]
    device: str
    folder: Path  # for what is left of a run that was interrupted
    progress: Tell | None = None


class Forecast(NamedTuple):
    """How long a group of runs will take."""

    features: str
    scenario: str
    setting: str  # the preset of heads; of networks the balance, and rules that are not the paper's
    runs: int
    left: int  # those that are not there yet
    seconds: float


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the digest of what decides a run's numbers."""
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


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
    start: str | None = None  # of the first rows, where preset "paper" has two; None: the head's
    gain: str | None = None  # of weight_norm; None becomes the head's own
    batch_size: int | None = None  # None becomes the authors'; no head without gradient has one

    def __post_init__(self) -> None:
        """Check what can be checked without data, and fill in the head's defaults."""
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
        if self.preset not in ("exact", "paper"):
            raise OptionError(f"preset must be 'exact' or 'paper', got '{self.preset}'")
        if self.subset is not None and self.scenario.kind != "iid":
            raise OptionError(
                f"a subset goes with scenario 'iid' only, got one with '{self.scenario}'"
            )
        written = {"head": base, **numbers, **self._options(base)}
        for name, value in written.items():
            object.__setattr__(self, name, value)

    def _options(self, head: str) -> dict[str, str | float | None]:
        """Return the learning rate, start, gain and batch size in use: a run has only one name."""
        card = card_of(head)
        if self.lr is not None and not card.by_gradient:
            raise OptionError(f"'{head}' takes no learning rate, got {self.lr}")
        for name in ("start", "gain"):
            expect(getattr(self, name), (str, type(None)), name, "text")
        if self.start is not None and self.preset == "exact":
            raise OptionError(f"a start goes with preset 'paper' only, got '{self.start}'")
        if self.batch_size is not None and not card.by_gradient:
            raise OptionError(f"'{head}' takes no batch size, got {self.batch_size}")
        given = BATCH_SIZE if self.batch_size is None else self.batch_size
        size = whole(given, "batch_size", 2, MOST_BATCH)
        return {
            "lr": card.rate(self.lr) if card.by_gradient else None,
            "start": card.start(self.start) if self.preset == "paper" else None,
            "gain": card.gain(self.gain),
            "batch_size": size if card.by_gradient else None,
        }

    @property
    def head_name(self) -> str:
        """The head with its mask, as it is typed."""
        return full_name(self.head, self.mask)

    @property
    def settings(self) -> Columns:
        """The columns that only runs of heads have, and the learning rate."""
        names = ("preset", "lr", "subset", "start", "gain", "batch_size")
        return {name: getattr(self, name) for name in names}

    @property
    def place(self) -> str:
        """What it is compared on: the same for all runs of one comparison."""
        some = "" if self.subset is None else f" {self.subset} samples"
        return f"{self.features} {self.scenario}{some} {self.preset}"

    @property
    def candidate(self) -> str:
        """What is compared: the head and its settings."""
        rate = "" if self.lr is None else f" at {self.lr:g}"
        return f"{self.head_name}{rate}{self._unusual(', {} {}')}"

    @property
    def by_gradient(self) -> bool:
        """Whether the head is trained by gradient, epoch after epoch."""
        return card_of(self.head).by_gradient

    def digest(self, fingerprint: str) -> str:
        """Name the run's numbers: a SHA-256 of all that decides them.

        The fingerprint stands for the data, so renaming these changes nothing.
        """
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        # Runs had these before they could be chosen, and keep their names.
        start = "normal" if self.mask == "single" else "uniform"
        first = {"start": start, "gain": "unit", "batch_size": BATCH_SIZE}
        for name, value in first.items():
            if document[name] in (None, value):
                del document[name]
        document |= {"features": fingerprint, "scenario": self.scenario.signature}
        version = card_of(self.head).version
        method = self.method if version == 1 else f"{self.method}.{version}"
        return digest_of(document | {"method": method})

    def __str__(self) -> str:
        rate = "" if self.lr is None else f" lr={self.lr:g}"
        some = "" if self.subset is None else f" subset={self.subset}"
        what = f"{self.features} {self.scenario} {self.head_name} {self.preset}"
        return f"{what}{rate} order={self.order} seed={self.seed}{some}{self._unusual(' {}={}')}"

    def _unusual(self, form: str) -> str:
        """Return the options that differ from the head's defaults, as text."""
        card, own = card_of(self.head), {"batch_size": BATCH_SIZE}
        usual = {"start": card.start(None), "gain": card.gain(None), **own}
        values = {name: getattr(self, name) for name in usual}
        return "".join(
            form.format(name, value)
            for name, value in values.items()
            if value not in (None, usual[name])
        )
