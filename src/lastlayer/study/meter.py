"""How much of the work is done, counted in samples that heads have seen."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from lastlayer.study.group import repeats
from lastlayer.study.run import Run

Tell = Callable[[int, int], None]  # takes the work done, and all there is


@dataclass
class Meter:
    """Tells how far the runs have come.

    >>> from lastlayer.study import ScenarioSpec
    >>> run = Run("mine", ScenarioSpec("iid"), "mean")
    >>> meter = Meter([run], {"mine": 1000}, 5, lambda done, total: print(done, "of", total))
    >>> meter.times(5)(1000)
    5000 of 5000
    """

    runs: Iterable[Run]
    sizes: Mapping[str, int]  # samples of each feature set
    epochs: int
    tell: Tell | None
    done: int = 0
    settled: int = 0  # the work of runs that are over, done or failed

    def __post_init__(self) -> None:
        """Add up all the work."""
        self.total = self._work(self.runs)
        self._lock = Lock()

    def times(self, n: int) -> Callable[[int], None]:
        """Give what counts n heads for every sample it is told of."""

        def add(samples: int) -> None:
            with self._lock:  # heads are trained in several threads
                self._set(min(self.done + n * samples, self.total))

        return add

    def settle(self, runs: Iterable[Run]) -> None:
        """Count runs as over, whatever they came to."""
        self.settled += self._work(runs)
        self._set(self.settled)

    def _set(self, done: int) -> None:
        self.done = done
        if self.tell is not None:
            self.tell(self.done, self.total)

    def _work(self, runs: Iterable[Run]) -> int:
        """Count the samples that heads will see; scoring one that learns once costs as much."""
        return sum(self._samples(run) * self.epochs for run in runs)

    def _samples(self, run: Run) -> int:
        n = run.subset or self.sizes.get(run.features, 0)
        return n * repeats(run, n) if n and run.by_gradient else n
