"""What people use instead, on a stream: accuracy after it, seconds, bytes, and what each can do.

    python -m benchmarks.rivals [--rows 10000] [--avalanche FOLDER] [--out FILE]

CIFAR10's features come with the package; five tasks of two classes, each seen once and in order. It
needs river and mapie beside lastlayer, and in FOLDER the unpacked wheel of avalanche-lib, of whose
StreamingLDA the methods `fit` and `predict` are run as they are: all that Avalanche wraps around
them, and torchvision, which it imports, is left out. RanPAC is no package: its rule is written out.
What is not installed is named as not run. What each can do is from its documentation, and what
lastlayer's heads can do is from their cards.
"""

import argparse
import ast
import importlib.util
import pickle
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV, SGDClassifier
from sklearn.naive_bayes import GaussianNB

import lastlayer as ll
from lastlayer.catalogue.head_cards import card_of

Array = NDArray[Any]
Task = tuple[Array, Array]
OUT = Path("results/benchmarks/rivals.md")
OURS = ("mean", "slda", "random_slda", "random_ridge", "kernel_ridge")
CLASSES = np.arange(10)
WIDTH = 2000  # of RanPAC's projection; its paper takes 10,000
PENALTIES = 10.0 ** np.arange(-8, 10)


class Retrained:
    """Keeps every row, and fits a model of scikit-learn's anew after each task."""

    def __init__(self, model: Any) -> None:
        self.model, self.tasks = model, []

    def learn(self, z: Array, y: Array) -> None:
        self.tasks.append((z, y))
        self.model.fit(*(np.concatenate(part) for part in zip(*self.tasks, strict=True)))

    def predict(self, z: Array) -> Array:
        return np.asarray(self.model.predict(z))


class Partly:
    """Learns by scikit-learn's partial_fit."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, z: Array, y: Array) -> None:
        self.model.partial_fit(z, y, classes=CLASSES)

    def predict(self, z: Array) -> Array:
        return np.asarray(self.model.predict(z))


class River:
    """Learns one row at a time, as a dict."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, z: Array, y: Array) -> None:
        for row, label in zip(z.tolist(), y.tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)

    def predict(self, z: Array) -> Array:
        return np.array([self.model.predict_one(dict(enumerate(row))) for row in z.tolist()])


class Ranpac:
    """RanPAC's rule: ridge regression behind ReLU of a random projection.

    McDonnell et al. (2023), section 4; the penalty by a fifth of each task, held out.
    """

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        self.projection = torch.randn(64, WIDTH, generator=random, dtype=torch.float64)
        self.gram = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
        self.sums = torch.zeros(WIDTH, len(CLASSES), dtype=torch.float64)

    def _map(self, z: Array) -> torch.Tensor:
        return torch.relu(torch.from_numpy(z) @ self.projection)

    def learn(self, z: Array, y: Array) -> None:
        phi, target = self._map(z), torch.eye(len(CLASSES), dtype=torch.float64)[y]
        held = torch.arange(len(z)) % 5 == 0
        gram = self.gram + phi[~held].mT @ phi[~held]
        sums = self.sums + phi[~held].mT @ target[~held]
        values, directions = torch.linalg.eigh(gram)
        asked, inner = phi[held] @ directions, directions.mT @ sums
        wrong = [
            float((asked @ (inner / (values + p)[:, None]) - target[held]).square().mean())
            for p in PENALTIES
        ]
        self.gram, self.sums = self.gram + phi.mT @ phi, self.sums + phi.mT @ target
        penalty = PENALTIES[int(np.argmin(wrong))]
        identity = torch.eye(WIDTH, dtype=torch.float64)
        self.weight = torch.linalg.solve(self.gram + penalty * identity, self.sums)

    def predict(self, z: Array) -> Array:
        return (self._map(z) @ self.weight).argmax(dim=1).numpy()


class Avalanche:
    """The methods fit and predict of Avalanche's StreamingLDA."""

    def __init__(self, folder: Path) -> None:
        source = folder / "avalanche" / "training" / "supervised" / "deep_slda.py"
        tree = ast.parse(source.read_text(encoding="utf-8"))
        (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        names: dict[str, Any] = {"torch": torch}
        kept = [m for m in found.body if getattr(m, "name", "") in ("fit", "predict")]
        exec(compile(ast.Module(kept, []), str(source), "exec"), names)
        self.state = types.SimpleNamespace(
            input_size=64, shrinkage_param=1e-4, streaming_update_sigma=True, device="cpu",
            muK=torch.zeros(len(CLASSES), 64), cK=torch.zeros(len(CLASSES)),
            Sigma=torch.ones(64, 64), num_updates=0, Lambda=torch.zeros(64, 64),
            prev_num_updates=-1,
        )  # fmt: skip
        self._fit, self._predict = names["fit"], names["predict"]

    def learn(self, z: Array, y: Array) -> None:
        for row, label in zip(torch.from_numpy(z).float(), torch.from_numpy(y), strict=True):
            self._fit(self.state, row[None], label[None])

    def predict(self, z: Array) -> Array:
        return self._predict(self.state, torch.from_numpy(z).float()).argmax(dim=1).numpy()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (vars(self.state),)  # what save_model writes, and Lambda


class Ours:
    """A head of lastlayer's, as a classifier."""

    def __init__(self, name: str) -> None:
        self.model = ll.HeadClassifier(name)

    def learn(self, z: Array, y: Array) -> None:
        self.model.partial_fit(z, y)

    def predict(self, z: Array) -> Array:
        return np.asarray(self.model.predict(z))

    def size(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(f"{folder}/head")
            return Path(folder, "head").stat().st_size


Make = Callable[[], Any]
Can = tuple[str, str, str, str, str]  # keeps rows, merges, forgets, refuses, is served


def contestants(avalanche: Path | None) -> Iterator[tuple[str, Make, Can]]:
    """Yield the name of each, how it is made, and what it can do."""
    no = ("no", "no", "no", "with MAPIE", "skl2onnx")
    kept = ("all", "by refitting", "by refitting", "with MAPIE", "skl2onnx")
    by_hand = ("no", "no", "no", "no", "code of your own")
    for model in (SGDClassifier(loss="log_loss"), GaussianNB()):
        yield f"scikit-learn `{type(model).__name__}`", partial(Partly, model), no
    for model in (RidgeClassifierCV(), LogisticRegression(max_iter=200)):
        yield f"scikit-learn `{type(model).__name__}`, retrained", partial(Retrained, model), kept
    for module, name in (("naive_bayes", "GaussianNB"), ("linear_model", "SoftmaxRegression")):
        yield f"river `{name}`", partial(_river, module, name), by_hand
    if avalanche is not None:
        yield "Avalanche `StreamingLDA`[^a]", partial(Avalanche, avalanche), by_hand
    yield f"RanPAC's rule, width {WIDTH:,}[^p]", Ranpac, by_hand
    for name in OURS:
        can = card_of(name).abilities
        forgets = "samples" + ", classes" * can.forgets_class
        ours = ("all" if can.keeps_samples else "no", "yes", forgets, "yes", "ONNX, HTTP")
        yield f"lastlayer `{name}`", partial(Ours, name), ours


def _river(module: str, name: str) -> River:
    return River(getattr(importlib.import_module(f"river.{module}"), name)())


def stream(rows: int) -> tuple[list[Task], Task]:
    """Return the tasks, of as many rows as are asked for, and the test rows."""
    data = ll.load_features("cifar10")
    every = len(data.train) // rows
    tasks = []
    for part in ll.make_scenario("cifar10", data).tasks:
        some = part[::every]
        tasks.append((data.train.z[some].double().numpy(), data.train.y[some].numpy()))
    return tasks, (data.test.z.double().numpy(), data.test.y.numpy())


def measure(make: Make, tasks: list[Task], test: Task) -> tuple[float, float, int]:
    """Return the accuracy after the stream in %, the seconds to learn, and the bytes."""
    model, began = make(), time.process_time()
    for z, y in tasks:
        model.learn(z, y)
    model.predict(test[0][:1])  # what is solved when it is asked is part of learning
    took = time.process_time() - began
    right = 100 * float((model.predict(test[0]) == test[1]).mean())
    size = model.size() if isinstance(model, Ours) else len(pickle.dumps(model))
    return right, took, size


def refusing(tasks: list[Task], test: Task) -> str:
    """Return what MAPIE's sets promise and keep around a logistic regression retrained."""
    from mapie.classification import SplitConformalClassifier  # noqa: PLC0415

    z, y = (np.concatenate(part) for part in zip(*tasks, strict=True))
    fitted = LogisticRegression(max_iter=200).fit(z, y)
    sets = SplitConformalClassifier(fitted, confidence_level=0.9, prefit=True)
    sets.conformalize(test[0][:2000], test[1][:2000])
    _, among = sets.predict_set(test[0][2000:])
    inside = 100 * among[np.arange(len(among)), test[1][2000:], 0].mean()
    return f"{inside:.1f} % of the sets have the right label, of {among.sum(1).mean():.1f} each"


HEADER = "| | accuracy, % | seconds | bytes | keeps rows | merges | forgets | refuses | served |"


def main() -> None:
    """Measure them one after the other, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    torch.set_num_threads(1)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--avalanche", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    tasks, test = stream(asked.rows)
    lines, missing = [HEADER, "|---" * 9 + "|"], []
    for name, make, can in contestants(asked.avalanche):
        try:
            right, took, size = measure(make, tasks, test)
        except ImportError as error:
            missing.append(f"{name} ({error})")
            continue
        lines.append(f"| {name} | {right:.1f} | {took:.1f} | {size:,} | {' | '.join(can)} |")
        print(lines[-1], flush=True)
    if asked.avalanche is None:
        missing.append("Avalanche `StreamingLDA` (no --avalanche)")
    try:
        around = refusing(tasks, test)
    except ImportError as error:
        around = "not run"
        missing.append(f"MAPIE ({error})")
    names = ("lastlayer", "scikit-learn", "river", "mapie")
    text = TEXT.format(
        rows=f"{sum(len(y) for _, y in tasks):,}",
        table="\n".join(lines),
        around=around,
        missing="; ".join(missing) or "nothing",
        versions=", ".join(f"{name} {version(name)}" for name in names if _has(name)),
    )
    asked.out.write_text(text, encoding="utf-8")


def _has(name: str) -> bool:
    return importlib.util.find_spec(name.replace("scikit-learn", "sklearn")) is not None


TEXT = """# What people use instead

    python -m benchmarks.rivals --avalanche FOLDER

Final accuracy on CIFAR10's 10,000 test rows after five tasks of two classes, {rows} rows of 64
features in all, each task learned once and in order; the processor's seconds to learn, with what is
solved when the first row is asked about; the bytes of the model as it is stored. Other work ran on
the machine. With {versions}. Not run: {missing}.

{table}

What others can do is from their documentation, what a head can do from its card. *Merges*: two that
learned apart become one that equals having seen both. *Forgets*: as if never learned, without the
other rows. *Refuses*: turns strange inputs away, with a stated share of known ones. *Served*: what
a service runs it from.

- **MAPIE** makes sets of labels around any classifier of scikit-learn's, and
  [around ours](../../docs/unknown.md#prediction-sets). At 90 %, around the logistic regression,
  {around}.
- **cleanlab** finds wrong labels, and rows of no class, from cross-validated probabilities of any
  classifier; it learns no stream. [audit.md](audit.md) has it beside `lastlayer audit`.

[^a]: Its methods `fit` and `predict` as they are in the wheel of avalanche-lib, and nothing of what
    Avalanche does around them; [fleet.md](fleet.md) has that. Answers are in float32.
[^p]: Written out from its paper, since its code is no package; the paper takes width 10,000.
"""


if __name__ == "__main__":
    main()
