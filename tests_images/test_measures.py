"""Our continual measures against Continuum's own functions, on the same matrices.

Release 1.2.7 slips in the indices of three of them, although its docstrings cite the same sources:
backward transfer leaves out the pairs (i, i−1), forgetting the last task but one and its row, and
forward transfer sums below the diagonal. Its divisors are those of the full sums. Given matrices
in which what it looks at is what the definition means, it must give our numbers.
"""

import numpy as np
import pytest
from continuum.metrics import Logger
from continuum.metrics import metrics as continuum

from lastlayer import analysis

SEEDS = range(8)


def counts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw sizes of 2 to 6 tasks, and how many are right of task j after task i."""
    rng = np.random.default_rng(seed)
    n_tasks = 2 + seed % 5
    sizes = rng.integers(1, 30, n_tasks)
    return rng.integers(0, sizes + 1, (n_tasks, n_tasks)), sizes


def predictions(right: np.ndarray, sizes: np.ndarray, upto: bool = False) -> list[list[np.ndarray]]:
    """Write the counts as Continuum wants them: predictions, targets, tasks, after each task."""
    preds, targets, tasks = [], [], []
    for i, row in enumerate(right):
        task = np.repeat(np.arange(len(sizes)), sizes)
        nth = np.arange(len(task)) - np.repeat(sizes.cumsum() - sizes, sizes)
        seen = task <= i if upto else slice(None)
        preds.append((nth < row[task]).astype(int)[seen])
        targets.append(np.ones_like(task)[seen])
        tasks.append(task[seen])
    return [preds, targets, tasks]


@pytest.mark.parametrize("seed", SEEDS)
def test_average_accuracy(seed: int) -> None:
    right, sizes = counts(seed)
    theirs = continuum.accuracy_A(*predictions(right, sizes))
    assert analysis.average_accuracy(right / sizes) == pytest.approx(theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_final_and_average_incremental_accuracy(seed: int) -> None:
    right, sizes = counts(seed)
    logger = Logger(list_subsets=["test"])
    incremental = []
    for batch in zip(*predictions(right, sizes, upto=True), strict=True):
        logger.add(value=list(batch), subset="test")
        incremental.append(logger.average_incremental_accuracy)
        final = logger.accuracy
        logger.end_task()
    assert analysis.final_accuracy(right / sizes, sizes) == pytest.approx(final)
    ours = analysis.average_incremental_accuracy(right / sizes, sizes)
    assert ours == pytest.approx(incremental[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_backward_transfer(seed: int) -> None:
    right, sizes = counts(seed)
    n = len(sizes)
    # Each row one down, so that the pairs (i, j < i) stand where it looks: at (i + 1, j < i).
    lower = np.zeros((n + 1, n + 1), dtype=int)
    lower[1:, :n] = right
    lower[np.arange(n), np.arange(n)] = right.diagonal()
    theirs = continuum.backward_transfer(*predictions(lower, np.append(sizes, 1)))
    terms, divisor = n * (n - 1) / 2, n * (n + 1) / 2
    assert analysis.backward_transfer(right / sizes) == pytest.approx(theirs * divisor / terms)


@pytest.mark.parametrize("seed", SEEDS)
def test_forgetting(seed: int) -> None:
    right, sizes = counts(seed)
    n = len(sizes)
    # One row more before the last, which it leaves out.
    longer = np.zeros((n + 1, n + 1), dtype=int)
    longer[:n, :n] = right
    longer[n, :n] = right[-1]
    theirs = continuum.forgetting(*predictions(longer, np.append(sizes, 1)))
    assert analysis.average_forgetting(right / sizes) == pytest.approx(theirs * n / (n - 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_transfer(seed: int) -> None:
    right, sizes = counts(seed)
    # Two tasks at a time and turned over, it looks at the one element meant: (j − 1, j).
    theirs = []
    for j in range(1, len(sizes)):
        turned = np.array([[0, 0], [right[j - 1, j], 0]])
        theirs.append(continuum.forward_transfer(*predictions(turned, np.array([sizes[j], 1]))))
    assert analysis.forward_transfer(right / sizes) == pytest.approx(np.mean(theirs))


@pytest.mark.parametrize("name", ["backward_transfer", "forward_transfer", "forgetting"])
def test_a_single_task(name: str) -> None:
    ours = getattr(analysis, name.replace("forgetting", "average_forgetting"))
    theirs = getattr(continuum, name)(*predictions(np.array([[3]]), np.array([4])))
    assert ours(np.array([[0.75]])) == theirs == 0
