"""Hostile arguments to every public name: what a call is made of, and what it must leave alone."""

import copy
import importlib
import inspect
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lastlayer as ll

Z = torch.arange(24.0).reshape(8, 3).sin()
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
SKIP = {
    # It downloads what it is named, or starts processes for a whole study.
    "load_backbone",
}


class OwnError(RuntimeError):
    """What an argument raises itself."""


class Awkward:
    """An object that raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise OwnError(name)

    def __array__(self, *_: object) -> Any:
        raise OwnError("array")

    def __len__(self) -> int:
        raise OwnError("len")

    def __str__(self) -> str:
        raise OwnError("str")

    __repr__ = __str__


def hostile(random_: random.Random) -> Any:
    """Return a value that nobody means."""
    makers: tuple[Callable[[], Any], ...] = (
        lambda: None, lambda: True, lambda: -1, lambda: 0, lambda: 10**30, lambda: -(10**30),
        lambda: 2**31, lambda: 2**63, lambda: 0.5, lambda: float("nan"), lambda: float("inf"),
        lambda: 1e150, lambda: 1j, lambda: "", lambda: "x" * 3000, lambda: "a\0b", lambda: "[1]*?",
        lambda: "[/nope]", lambda: "é\n\x1b[31m", lambda: "\ud800", lambda: b"slda", lambda: [],
        dict, tuple, lambda: [None], lambda: {"a": None}, lambda: {1: 2}, object,
        lambda: Awkward(), lambda: int, lambda: len, lambda: iter([1]), lambda: range(3),
        lambda: Z.to_sparse(), lambda: Z.to("meta"), lambda: Z.to(torch.float8_e4m3fn),
        lambda: Z + 1j, lambda: Z * float("nan"), lambda: Z.double() * 1e150, lambda: Z.half(),
        lambda: Z.bool(), lambda: Z[:0], lambda: Z[:, :0], lambda: Z[0], lambda: Z[None],
        lambda: Y - 5, lambda: Y + 10**12, lambda: Y.double(), lambda: Y[:3], lambda: Y.to("meta"),
        lambda: torch.tensor(3), lambda: np.array(Z), lambda: np.array([object()]),
        lambda: np.zeros((2, 2), "U3"), lambda: np.array(["NaT"], "M8[s]"), lambda: np.zeros(0),
        lambda: np.ma.masked_array([1.0, 2.0], mask=[0, 1]), lambda: Path("nothing"),
        lambda: torch.nn.Linear(3, 2), lambda: ll.make_head("mean", in_features=3),
        lambda: torch.float32, lambda: torch.device("cpu"), lambda: np.float16(3), lambda: set(),
    )  # fmt: skip
    return random_.choice(makers)()


def data() -> Any:
    """Return small features with two columns of labels."""
    z, y = torch.cat([Z, Z + 0.1]), torch.cat([Y, Y])
    return ll.Features.from_arrays(
        z, y, test=(Z, Y, {"session": Y % 2}), session=torch.cat([Y, Y]) % 2
    )


def right(name: str, random_: random.Random) -> Any:
    """Return a value that a parameter of this name may have."""
    table: dict[str, Callable[[], Any]] = {
        "z": lambda: Z.clone(), "y": lambda: Y.clone(), "X": Z.numpy, "logits": lambda: Z.clone(),
        "data": data, "train": lambda: data().train, "test": lambda: data().test,
        "name": lambda: random_.choice(("slda", "cosine", "cifar10", "mean+single", "knn")),
        "head": lambda: random_.choice(("slda", "linear+group")), "in_features": lambda: 3,
        "n_classes": lambda: random_.choice((0, 3)), "out_features": lambda: 3,
        "mask": lambda: "none", "preset": lambda: "exact", "label": lambda: "y",
        "labels": lambda: {"y": Y.clone()}, "by": lambda: "session", "tasks": lambda: 3,
        "order": lambda: 0, "orders": lambda: [0], "seed": lambda: 0, "size": lambda: 4,
        "heads": lambda: ["mean"], "scenario": lambda: "incremental:3", "path": lambda: "made",
        "folder": lambda: "examples/study" if random_.random() < 0.02 else "nothing",
        "out": lambda: "made", "weight": Z.numpy,
        "before": Z.numpy, "after": (Z + 1).numpy, "bias": lambda: Z[:, 0].numpy(),
        "matrix": lambda: np.eye(3), "other": lambda: ll.make_head("mean", in_features=3),
        "n_tasks": lambda: 3, "names": lambda: {"y": ("a", "b", "c")}, "device": lambda: "cpu",
        "root": lambda: "examples", "state_dict": lambda: {}, "mapping": lambda: {},
    }  # fmt: skip
    return table[name]() if name in table else hostile(random_)


def targets() -> dict[str, Any]:
    """Return every public function and class by its full name, as they are now."""
    found: dict[str, Any] = {}
    for name in ll.__all__:
        value = getattr(ll, name)
        if not inspect.ismodule(value):
            found[f"lastlayer.{name}"] = value
            continue
        for inner in getattr(value, "__all__", ()):
            home = importlib.import_module(value.__name__)
            if callable(getattr(home, inner)) and inner not in SKIP:
                found[f"{value.__name__}.{inner}"] = getattr(home, inner)
    found = {name: target for name, target in found.items() if _fair(target)}
    made = {"features": data(), "classifier": ll.HeadClassifier("mean"), "linear": ll.Linear(3, 3)}
    made["classifier"].fit(Z.numpy(), Y.numpy())
    verbs = {
        "lastlayer.Features.from_arrays": ll.Features.from_arrays,
        "lastlayer.Features.with_label": made["features"].with_label,
        "lastlayer.Features.save": made["features"].save,
        "lastlayer.Linear.forward": made["linear"].forward,
        "lastlayer.HeadClassifier.fit": made["classifier"].fit,
        "lastlayer.HeadClassifier.partial_fit": made["classifier"].partial_fit,
        "lastlayer.HeadClassifier.predict": made["classifier"].predict,
        "lastlayer.HeadClassifier.predict_proba": made["classifier"].predict_proba,
    }
    return found | verbs


def _fair(target: Any) -> bool:
    if inspect.isclass(target):
        return not (inspect.isabstract(target) or issubclass(target, BaseException))
    return inspect.isfunction(target)


def heads() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give a maker of each head that has learned something."""
    from lastlayer.catalogue.head_cards import all_heads  # noqa: PLC0415  (read at call time)

    for name in all_heads():

        def make(name: str = name) -> Any:
            head = ll.make_head(name, in_features=3)
            head.observe(Z.clone(), Y.clone())
            return head

        yield name, make


GIVEN = {"heads"}  # without them all there are would be trained, a minute's work and no fault
VERBS = (
    "observe", "observe", "forward", "predict", "merge", "forget", "forget_class", "as_linear",
    "as_layer", "save", "load_state_dict",
)  # fmt: skip


def call(target: Any, random_: random.Random, share: float) -> tuple[str, Callable[[], Any]]:
    """Prepare a call of a target, each argument hostile with this chance; say what it is."""
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD and random_.random() < 0.2:
            named["odd"] = hostile(random_)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty
        if optional and parameter.name not in GIVEN and random_.random() < 0.6:
            continue
        bad = random_.random() < share
        value = hostile(random_) if bad else right(parameter.name, random_)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[parameter.name] = value
    words = ", ".join([*map(_word, positional), *(f"{n}={_word(v)}" for n, v in named.items())])
    return words, lambda: target(*positional, **named)


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor{tuple(value.shape)} {value.dtype} {value.layout} {value.device}"
    try:
        return repr(value)[:60].replace("\n", " ")
    except Exception:  # an awkward object
        return type(value).__name__


def snapshot(head: Any) -> Any:
    """Return what a head must still be after an error."""
    return copy.deepcopy(dict(head.state_dict())), head.n_classes


def same(head: Any, before: Any) -> bool:
    """Tell whether a head is as it was, bit for bit."""
    state, n_classes = before
    now = head.state_dict()
    return (
        head.n_classes == n_classes
        and now.keys() == state.keys()
        and all(
            torch.equal(now[k].reshape(-1).view(torch.uint8), v.reshape(-1).view(torch.uint8))
            for k, v in state.items()
        )
    )
