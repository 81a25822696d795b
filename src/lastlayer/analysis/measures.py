"""Continual measures from R[i, j], the accuracy on task j after training task i.

R is (…, T, T), with tasks in the order of training (``after_each_task`` makes it). Each measure
is (…), NaN where R is. Definitions are those of Continuum, without the indexing errors in its
release 1.2.7 (docs/analysis.md); all tasks weigh the same unless sizes are given.
"""

import numpy as np

from lastlayer.analysis.inputs import Floats, Ints, check_square, takes_arrays
from lastlayer.errors import ShapeError


@takes_arrays
def final_accuracy(matrix: Floats, sizes: Ints | None = None) -> Floats:
    """Return Σ_j n_j R[T−1, j] / Σ_j n_j: the accuracy on all tasks at the end.

    Args:
        matrix: (…, T, T) accuracy on task j after training task i.
        sizes: (T,) test samples n_j of each task; None: all weigh the same, which is the ACC of
            Lopez-Paz & Ranzato (2017).

    >>> final_accuracy(np.array([[1.0, 0.0], [0.5, 0.75]])).item()
    0.625
    """
    accuracy: Floats = _seen_so_far(matrix, sizes)[..., -1]
    return accuracy


@takes_arrays
def average_incremental_accuracy(matrix: Floats, sizes: Ints | None = None) -> Floats:
    """Return the mean over i of Σ_{j≤i} n_j R[i, j] / Σ_{j≤i} n_j (iCaRL, Rebuffi et al. 2017).

    The accuracy on what has been learned so far, averaged over tasks. Arguments as in
    ``final_accuracy``.

    >>> average_incremental_accuracy(np.array([[1.0, 0.0], [0.5, 0.75]])).item()
    0.8125
    """
    return _mean(_seen_so_far(matrix, sizes))


@takes_arrays
def average_accuracy(matrix: Floats) -> Floats:
    """Return the mean of R[i, j] over all i ≥ j: A of Díaz-Rodríguez et al. (2018).

    >>> average_accuracy(np.array([[1.0, 0.0], [0.5, 0.75]])).item()
    0.75
    """
    _check(matrix)
    return _mean(matrix[..., *np.tril_indices(matrix.shape[-1])])


@takes_arrays
def average_forgetting(matrix: Floats) -> Floats:
    """Return the mean over j < T−1 of max_{j≤l<T−1} R[l, j] − R[T−1, j] (Chaudhry et al. 2018).

    The best accuracy a task ever had since it was learned, less its accuracy at the end; 0 for a
    single task. Chaudhry et al. take the maximum over all l < T−1.

    >>> average_forgetting(np.array([[1.0, 0.0, 0.0], [0.5, 0.75, 0.0], [0.25, 0.5, 1.0]])).item()
    0.5
    """
    past = _check(matrix) - 1
    if past == 0:
        return np.zeros(matrix.shape[:-2])
    came = np.tri(past, dtype=bool)
    best = np.where(came, matrix[..., :past, :past], -np.inf).max(axis=-2)
    return _mean(best - matrix[..., past, :past])


@takes_arrays
def backward_transfer(matrix: Floats) -> Floats:
    """Return the mean of R[i, j] − R[j, j] over all i > j (Díaz-Rodríguez et al. 2018).

    What later tasks did to earlier ones, on average over the stream; 0 for a single task.
    Lopez-Paz & Ranzato (2017) take the last i only.

    >>> backward_transfer(np.array([[1.0, 0.0], [0.5, 0.75]])).item()
    -0.5
    """
    n_tasks = _check(matrix)
    if n_tasks == 1:
        return np.zeros(matrix.shape[:-2])
    own = np.diagonal(matrix, axis1=-2, axis2=-1)
    since = matrix - own[..., None, :]
    return _mean(since[..., *np.tril_indices(n_tasks, -1)])


@takes_arrays
def forward_transfer(matrix: Floats, before: Floats | None = None) -> Floats:
    """Return the mean of R[j−1, j] − b_j over j ≥ 1 (Lopez-Paz & Ranzato 2017).

    What is known of a task just before it is learned; 0 for a single task.

    Args:
        matrix: (…, T, T) accuracy on task j after training task i.
        before: (…, T) accuracy b_j on each task before any training (``before_training``); None:
            0, as in Continuum.

    >>> forward_transfer(np.array([[1.0, 0.25], [0.5, 0.75]]), before=np.array([0.0, 0.125])).item()
    0.125
    """
    n_tasks = _check(matrix)
    if before is not None and before.shape[-1:] != (n_tasks,):
        raise ShapeError(f"before must end in {n_tasks} accuracies, one a task, got {before.shape}")
    if n_tasks == 1:
        return np.zeros(matrix.shape[:-2])
    next_one = np.diagonal(matrix, offset=1, axis1=-2, axis2=-1)
    return _mean(next_one if before is None else next_one - before[..., 1:])


def _seen_so_far(matrix: Floats, sizes: Ints | None) -> Floats:
    """Return the accuracy on tasks 0…i after each task i: (…, T)."""
    n_tasks = _check(matrix)
    sizes = np.ones(n_tasks, dtype=np.int64) if sizes is None else np.asarray(sizes)
    if sizes.shape != (n_tasks,):
        raise ShapeError(f"sizes must have the shape ({n_tasks},), got {sizes.shape}")
    past = np.tri(n_tasks, dtype=bool)
    right = np.where(past, matrix * sizes, 0).sum(axis=-1)
    accuracy: Floats = right / sizes.cumsum()
    return accuracy


def _mean(values: Floats) -> Floats:
    """Take the mean over the last axis."""
    mean: Floats = values.mean(axis=-1)
    return mean


def _check(matrix: Floats) -> int:
    """Check the matrix and return the number of tasks."""
    check_square("accuracies", matrix)
    if not matrix.shape[-1]:
        raise ShapeError("accuracies must be of at least one task, got none")
    return int(matrix.shape[-1])
