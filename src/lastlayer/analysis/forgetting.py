"""How a task is forgotten: its accuracy from the end of its own training on (appendix)."""

from collections.abc import Sequence

from lastlayer.analysis.arrays import Floats, takes_arrays, whole_numbers
from lastlayer.analysis.timeline import epochs_per_task
from lastlayer.arguments import whole


@takes_arrays
def accuracy_since_learned(by_task: Floats, order: Sequence[int], nth: int = 0) -> Floats:
    """Return the accuracy on the nth task after its last epoch and after each epoch that follows.

    With ``nth=0`` this is the appendix's figure of the first task in a lifelong scenario.

    Args:
        by_task: (…, 1 + T·E, T) accuracies before training, then after each of E epochs of each
            task in turn; columns are tasks by their number.
        order: The number of each task, in the order of training.
        nth: Which task, in the order of training, from 0.

    Returns:
        (…, 1 + (T − 1 − nth)·E)

    >>> import numpy as np
    >>> by_task = np.array([[0.1, 0.0], [0.2, 0.6], [0.3, 0.9], [0.4, 0.7], [0.8, 0.5]])
    >>> accuracy_since_learned(by_task, order=(1, 0)).tolist()
    [0.9, 0.7, 0.5]
    """
    epochs = epochs_per_task(by_task, order)
    nth = whole(nth, "a task", least=0, most=len(order) - 1)
    return by_task[..., (nth + 1) * epochs :, whole_numbers(order, "order")[nth]]


@takes_arrays
def forgotten(by_task: Floats, order: Sequence[int], nth: int = 0) -> Floats:
    """Return how much of the nth task's accuracy has been lost since it was learned.

    The accuracy after its last epoch minus the accuracy after each later epoch; below 0 where
    later tasks helped. Arguments and shape are those of ``accuracy_since_learned``.

    >>> import numpy as np
    >>> by_task = np.array([[0.1, 0.0], [0.25, 0.75], [1.0, 0.5]])
    >>> forgotten(by_task, order=(1, 0)).tolist()
    [0.0, 0.25]
    """
    accuracy = accuracy_since_learned(by_task, order, nth)
    return accuracy[..., :1] - accuracy
