"""The kinds of scenario: each function assigns the training rows to tasks, by their labels.

The function of a card in ``lastlayer.catalogue.KINDS`` has the name of the card, and takes
``data``, ``label``, ``order`` and the card's argument.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import expect, short, whole
from lastlayer.errors import DataError, OptionError
from lastlayer.scenarios.scenario import (
    Data,
    Scenario,
    check_seed,
    column,
    count_classes,
    count_values,
    lay_out,
    learned,
)

# The most rows drawn with replacement: 0.8 GB of row numbers.
MOST_ROWS = 100_000_000


def incremental(
    data: Data, tasks: int | Sequence[int] = 5, label: str | None = None, order: int = 0
) -> Scenario:
    """Bring new classes with every task, ascending.

    Args:
        data: The training and test split.
        tasks: The number of tasks of equally many classes, or a list: the classes of each task.
        label: The column that is learned; by default the primary one.
        order: The seed of the order of tasks; 0 leaves them ascending.

    >>> from lastlayer import load_features
    >>> data = load_features("cifar10")
    >>> [len(rows) for rows in incremental(data, tasks=[6, 4]).tasks]
    [30000, 20000]
    """
    label = learned(data, label)
    per_task = _classes_per_task(tasks, count_classes(data, label))
    task_of = torch.arange(len(per_task)).repeat_interleave(torch.tensor(per_task))
    return lay_out("incremental", data, label=label, by=label, task_of=task_of, order=order)


def lifelong(data: Data, by: str = "session", label: str | None = None, order: int = 0) -> Scenario:
    """Bring all classes with every task, in new surroundings: one value of ``by`` per task.

    >>> import torch
    >>> from lastlayer import Features
    >>> z, y = torch.randn(8, 2), torch.arange(8) % 2
    >>> data = Features.from_arrays(z, y, test=(z, y), session=torch.arange(8) // 4)
    >>> [rows.tolist() for rows in lifelong(data, by="session").tasks]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    scenario = _one_value_per_task("lifelong", data, by, label, order)
    return _with_all_classes(scenario, data, by)


def mixed(data: Data, by: str, label: str | None = None, order: int = 0) -> Scenario:
    """Bring one value of column ``by`` per task, labelled by another column.

    >>> from lastlayer import load_features
    >>> data = load_features("cifar100")
    >>> scenario = mixed(data, by="fine", label="coarse")
    >>> scenario.n_tasks, scenario.n_classes
    (100, 20)
    """
    return _one_value_per_task("mixed", data, by, label, order)


def nested(data: Data, by: str, label: str | None = None, order: int = 0) -> Scenario:
    """Bring all classes with every task: task i holds the i-th class of ``by`` in each of them.

    >>> from lastlayer import load_features
    >>> data = load_features("cifar100")
    >>> scenario = nested(data, by="fine", label="coarse")
    >>> scenario.n_tasks, data.train.labels["fine"][scenario.tasks[0]].unique()[:5]
    (5, tensor([0, 1, 2, 3, 4]))
    """
    label = _other_column(data, by, label)
    task_of = _rank_within(data, by, label)
    scenario = lay_out("nested", data, label=label, by=by, task_of=task_of, order=order)
    return _with_all_classes(scenario, data, by)


def iid(data: Data, label: str | None = None, order: int = 0) -> Scenario:
    """Bring everything at once; one task has one order.

    >>> from lastlayer import load_features
    >>> [len(rows) for rows in iid(load_features("cifar10")).tasks]
    [50000]
    """
    label = learned(data, label)
    return _one_task("iid", data, label, torch.arange(len(column(data.train, label))))


def subset(
    data: Data, size: int, seed: int = 0, replace: bool = True, label: str | None = None
) -> Scenario:
    """Bring ``size`` training rows at once, as drawn; the test set stays whole.

    Args:
        data: The training and test split.
        size: How many rows.
        seed: Decides which rows; with replacement they are exactly the paper's.
        replace: Whether a row may come more than once, as in the paper.
        label: The column that is learned; by default the primary one.

    >>> from lastlayer import load_features
    >>> subset(load_features("cifar10"), size=5, seed=1).tasks
    (tensor([33003, 12172,  5192, 32511, 43723]),)
    """
    label = learned(data, label)
    n = len(column(data.train, label))
    expect(replace, bool, "replace", "True or False")
    size = whole(size, "a subset size", least=1, most=MOST_ROWS if replace else n)
    random = np.random.RandomState(check_seed("a seed", seed))
    # int64 by name: numpy's own default, and with it the numbers drawn, depend on the platform.
    drawn = random.randint(0, n, size, dtype=np.int64) if replace else random.permutation(n)[:size]
    return _one_task("subset", data, label, torch.from_numpy(drawn).long())


def _one_task(name: str, data: Data, label: str, rows: Tensor) -> Scenario:
    return Scenario(
        name=name,
        label=label,
        n_classes=count_classes(data, label),
        tasks=(rows,),
        test_tasks=(torch.arange(len(column(data.test, label))),),
        order=(0,),
    )


def _classes_per_task(tasks: int | Sequence[int], n_classes: int) -> list[int]:
    if not isinstance(tasks, Sequence) or isinstance(tasks, str):
        tasks = whole(tasks, "tasks")
        if tasks > n_classes:
            raise OptionError(
                f"tasks must be at most the number of classes, {n_classes}, got {short(tasks)}"
            )
        if tasks < 1 or n_classes % tasks:
            raise OptionError(
                f"tasks must divide the {n_classes} classes, got {tasks}; or give the number of "
                f"classes of each task{_example(tasks, n_classes)}"
            )
        return [n_classes // tasks] * tasks
    tasks = [whole(size, "the number of classes of a task") for size in tasks]
    if min(tasks, default=0) < 1 or sum(tasks) != n_classes:
        raise OptionError(
            f"tasks must have at least 1 class each and {n_classes} in all, got {short(tasks)}"
        )
    return tasks


def _example(tasks: int, n_classes: int) -> str:
    """Return how tasks that are as even as possible are written, in Python, shell and plans."""
    if tasks < 1:
        return ""
    few, more = divmod(n_classes, tasks)
    sizes = [few + 1] * more + [few] * (tasks - more)
    text = ",".join(map(str, sizes))
    return f": tasks={sizes}, --incremental {text}, or incremental:{text} in a plan"


def _other_column(data: Data, by: str, label: str | None) -> str:
    label = learned(data, label)
    expect(by, str, "by", "the name of a label column")
    if by == label:
        raise OptionError(
            f"by must name another column than the label '{label}'; "
            "use incremental where each task brings new classes"
        )
    return label


def _one_value_per_task(name: str, data: Data, by: str, label: str | None, order: int) -> Scenario:
    label = _other_column(data, by, label)
    values = column(data.train, by).unique()
    task_of = torch.full((count_values(data, by),), -1)
    task_of[values] = torch.arange(len(values))
    return lay_out(name, data, label=label, by=by, task_of=task_of, order=order)


def _rank_within(data: Data, by: str, label: str) -> Tensor:
    """Rank each class of ``by`` within its class of ``label``; −1: it has no training rows."""
    n = count_values(data, by)
    pairs = (column(data.train, label) * n + column(data.train, by)).unique()
    outer, inner = pairs // n, pairs % n
    if len(inner.unique()) < len(inner):
        raise DataError(
            f"each value of '{by}' must belong to one class of '{label}'; "
            f"mixed:{by}/{label} takes any columns"
        )
    sizes = outer.bincount()
    first = sizes.cumsum(0) - sizes
    rank = torch.full((n,), -1)
    rank[inner] = torch.arange(len(inner)) - first[outer]
    return rank


def _with_all_classes(scenario: Scenario, data: Data, by: str) -> Scenario:
    """Refuse tasks that lack a class: then classes come and go too, which is a mixed scenario."""
    labels = column(data.train, scenario.label)
    n_classes = len(labels.unique())
    for number, rows in zip(scenario.order, scenario.tasks, strict=True):
        found = len(labels[rows].unique())
        if found < n_classes:
            raise DataError(
                f"every task by '{by}' must have all {n_classes} classes of '{scenario.label}', "
                f"but task {number} has {found}; use mixed:{by} for such data"
            )
    return scenario
