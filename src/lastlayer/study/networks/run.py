"""A run of a network end to end: everything that decides its numbers, besides the images."""

from dataclasses import asdict, dataclass, field
from typing import ClassVar

from lastlayer.catalogue import full_name
from lastlayer.results.columns import Kind
from lastlayer.results.store import Columns
from lastlayer.study.run import digest_of
from lastlayer.study.scenario_spec import ScenarioSpec
from lastlayer.training.replay import ReplayRules, TrainingOptions
from lastlayer.training.replay.learner import Network

BACKBONE = "resnet20"


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

        Args:
            fingerprint: of the images. It stands for them, so renaming the data changes nothing.
        """
        document = asdict(self) | {"dataset": fingerprint, "backbone": BACKBONE}
        del document["options"]  # a run without any is named as it was before there were some
        document |= self.options.decisive()
        document |= {"scenario": self.scenario.signature, "replay": self.method}
        return digest_of(document)

    def __str__(self) -> str:
        what = f"{self.features} {self.scenario} {self.head_name}"
        return f"{what} balance={self.balance:g} seed={self.seed}"
