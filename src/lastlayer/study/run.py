"""What every run has, of a head or of a network: its name, its columns, what it compares."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lastlayer.core.progress import Tell
from lastlayer.results.columns import Kind
from lastlayer.results.store import Columns
from lastlayer.scenarios.spec import AnyScenario


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
