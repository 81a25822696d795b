"""Studies with made-up numbers, written straight into a store: fast, and of any shape."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lastlayer import __version__
from lastlayer.results.store import Record, open_store

LAYERS = ("linear", "linear_no_bias", "weight_norm", "original_weight_norm", "cosine")
ALL = (
    *(f"{layer}{mask}" for layer in LAYERS for mask in ("", "+group", "+single")),
    *("knn", "mean", "median", "slda"),
)
RATES = {"linear": 0.01, "linear_no_bias": 0.01}
REPAIRS = ("repair_old_vectors", "repair_no_later_classes", "repair_either", "repair_both")
OTHERS = ("kept", "gained", "never_learned", "interference_size", "interference_direction")
STARTED = ("linear", "linear_no_bias", "original_weight_norm")
H, EPOCHS, PER_CLASS = 6, 2, 20


@dataclass(frozen=True)
class Stream:
    """A scenario on some features, and the heads and orders that were run."""

    scenario: str = "cifar10"
    features: str = "cifar10/resnet20-cifar100"
    label: str = "class"
    n_classes: int = 10
    n_tasks: int = 5
    heads: Sequence[str] = ALL
    orders: Iterable[int] = (0, 1, 2)
    preset: str = "paper"
    lrs: Sequence[float | None] = (None,)
    subsets: Sequence[int | None] = (None,)
    names: Sequence[str] = ()
    dataset: str = ""  # where the features come from, if that is known
    state: str = "done"
    start: str | None = "uniform"
    gain: str = "unit"
    batch_size: int = 264
    diverged: Sequence[int] = ()  # orders in which gradient heads diverge
    extra: dict[str, Any] = field(default_factory=dict)


def write_study(folder: Path, streams: Sequence[Stream], **about: str) -> Path:
    """Write a study of these streams; the same streams give the same numbers."""
    data = {}
    for stream in streams:
        names = list(stream.names) or [f"class {c}" for c in range(stream.n_classes)]
        known = data.setdefault(stream.features, ("f" * 64, {
            "names": {}, "origin": {"dataset": stream.dataset}, "n_train": 1000,
            "n_test": 20 * stream.n_classes, "in_features": H,
        }))  # fmt: skip
        known[1]["names"][stream.label] = names
    made = [run for stream in streams for run in _runs(stream)]
    with open_store(folder) as store:
        store.describe("# a plan\n", data, **({"version": __version__} | about))
        store.plan({digest: columns for digest, columns, _ in made})
        store.save([record for _, _, record in made if record])
    return folder


def _runs(stream: Stream) -> Iterable[tuple[str, dict[str, Any], Record | None]]:
    for name in stream.heads:
        head, _, mask = name.partition("+")
        for lr in stream.lrs if head in LAYERS else (None,):
            for subset in stream.subsets:
                for order in stream.orders:
                    what = {
                        "features": stream.features, "scenario": stream.scenario,
                        "label": stream.label, "head": head, "mask": mask or "none",
                        "preset": stream.preset, "order": order, "seed": order,
                        "lr": (lr or RATES.get(head, 0.1)) if head in LAYERS else None,
                        "subset": subset,
                        "start": stream.start if head in (*STARTED, "unseen_1") else None,
                        "gain": stream.gain if head == "weight_norm" else None,
                        "batch_size": stream.batch_size
                        if head in (*LAYERS, "unseen_1")
                        else None,
                    }  # fmt: skip
                    digest = repr(sorted(what.items(), key=str))
                    yield digest, what, _record(digest, what, stream)


def _record(digest: str, what: dict[str, Any], stream: Stream) -> Record | None:
    if stream.state == "planned":
        return None
    if stream.state == "failed":
        return Record(digest, {"state": "failed", "message": "no <room> left"})
    rng = np.random.default_rng(list(digest.encode()))
    gone = what["order"] in stream.diverged and what["head"] in LAYERS
    arrays = _arrays(rng, what, stream)
    lost = rng.integers(0, 2 * stream.n_classes, 4).tolist()
    columns: dict[str, Any] = {
        "state": "done", "n_classes": stream.n_classes, "n_tasks": stream.n_tasks,
        "epochs": EPOCHS, "diverged": 7 if gone else None, "final": None,
    }  # fmt: skip
    if gone:
        arrays["right_by_class"][1:] = -1
        arrays["right_by_task"][1:] = -1
    else:
        right = arrays["right_by_class"][-1].sum()
        columns["final"] = float(right / arrays["n_per_class"].sum())
    if stream.n_tasks > 1 and not gone:
        columns |= dict(zip(("average", "forgetting"), rng.random(2).tolist(), strict=True))
        columns |= {"lost": sum(lost), **dict(zip(REPAIRS, lost, strict=True))}
        others = rng.integers(0, 2 * stream.n_classes, len(OTHERS)).tolist()
        columns |= dict(zip(OTHERS, others, strict=True))
    return Record(digest, columns | stream.extra, arrays)


def _arrays(rng: np.random.Generator, what: dict[str, Any], stream: Stream) -> dict[str, Any]:
    n, tasks = stream.n_classes, stream.n_tasks
    steps = 1 + tasks * EPOCHS
    per_task = np.full(tasks, n * PER_CLASS // tasks)
    per_task[-1] += n * PER_CLASS - per_task.sum()
    arrays = {
        "right_by_class": rng.integers(0, PER_CLASS + 1, (steps, n)).astype(np.int32),
        "right_by_task": rng.integers(0, per_task + 1, (steps, tasks)).astype(np.int32),
        "n_per_class": np.full(n, PER_CLASS),
        "n_per_task": per_task,
        "task_order": np.random.default_rng(what["order"]).permutation(tasks),
    }
    if what["order"] == 0:
        arrays["task_order"] = np.arange(tasks)
    came = np.argsort(arrays["task_order"])  # when each task came; classes ascend with the tasks
    arrays["arrived"] = came[np.minimum(np.arange(n) // max(n // tasks, 1), tasks - 1)]
    if tasks > 1 and what["head"] != "knn":
        arrays["norm"] = rng.random((tasks, n), dtype=np.float32)
        arrays["bias"] = rng.normal(size=(tasks, n)).astype(np.float32)
        if what["order"] == 0:
            arrays["weight"] = rng.normal(size=(tasks, n, H)).astype(np.float32)
            arrays["data_angles"] = rng.uniform(10, 90, (tasks, n, n)).astype(np.float32)
    return arrays


def iid(features: str, label: str, n_classes: int, **more: Any) -> Stream:
    """All data at once."""
    more = {"dataset": features.partition("/")[0]} | more
    return Stream(f"iid/{label}", features, label, n_classes, n_tasks=1, **more)


CIFAR100 = "cifar100/resnet20-cifar100"
PAPER = (  # every section of the page has something to show of this one
    Stream(dataset="cifar10"),
    Stream("cifar100_lifelong", CIFAR100, "coarse", 20, 5),
    Stream("cifar100_mix", CIFAR100, "coarse", 20, 100),
    Stream(preset="exact", heads=("linear", "slda")),
    iid("cifar10/resnet20-cifar100", "class", 10, subsets=(100, 500, None)),
    iid(CIFAR100, "coarse", 20, subsets=(100, 500, None)),
    iid("cifar10/resnet20-cifar10", "class", 10, heads=LAYERS, lrs=(0.1, 0.01)),
    iid("cifar10/resnet20-cifar100", "class", 10, heads=LAYERS, lrs=(0.1, 0.01)),
)
HUNDRED = Stream("cifar100", CIFAR100, "fine", 100, 10, heads=("linear", "weight_norm", "slda"))
