"""How often a head notices features of another model by their first rows, and how often wrongly.

`python -m benchmarks.other_features --out results/benchmarks/other_features.md` uses the bundled
features and scikit-learn's sets. With `--images ROOT --weights FOLDER` (CIFAR100's official files,
and the two released ResNet-20) and `--texts MODEL` (a folder with all-MiniLM-L6-v2; needs
transformers) it adds embeddings of other models; these are kept in `--cache`.
"""

import argparse
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_wine,
    make_blobs,
    make_classification,
)
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from torch import Tensor

import lastlayer as ll
from lastlayer.extraction import load_backbone, read_images
from lastlayer.extraction.backbones.preparation import AUTHORS, IMAGENET
from lastlayer.extraction.backbones.preparation import normalise as prepare
from lastlayer.heads import first_rows
from lastlayer.heads.first_rows import ENOUGH, Directions

HEADS = ("slda", "knn", "random_ridge", "random_slda", "mean")
DRAWS = 20  # of first rows, for each case
LEARNED = 5000  # rows at most
# What is honest: the same features, whatever the data. What is not: embeddings of other models.
HONEST = ("same rows", "one class", "other half of the classes", "next two classes", "other data")
OTHERS = ("another model", "another layer or pooling", "columns shuffled", "length 1", "ten times")
ALIKE = ("another normalisation",)
WORDS = "word counts"  # of which latent semantic analysis makes features
Set = tuple[Tensor, Tensor]  # features (n, h) and labels (n,)


@dataclass
class Data:
    """Rows to learn and rows to ask about, and the same rows as other models see them."""

    learned: Set
    asked: Set
    further: dict[str, list[Tensor]] = field(default_factory=dict)  # case → features of rows asked


def split(z: Any, y: Any, seed: int = 0) -> tuple[Set, Set, np.ndarray[Any, Any]]:
    """Draw 30 % of the rows to ask about."""
    order = np.random.default_rng(seed).permutation(len(y))
    rows, asked = order[: int(0.7 * len(y))], order[int(0.7 * len(y)) :]
    z, y = torch.as_tensor(np.asarray(z)).double(), torch.as_tensor(np.asarray(y)).long()
    return (z[rows], y[rows]), (z[asked], y[asked]), asked


def bundled() -> Iterator[tuple[str, Data]]:
    """The bundled features: one backbone on two data sets, so each is other data of the other."""
    found = {}
    for name, label in (("cifar10", None), ("cifar100", "fine"), ("cifar100", "coarse")):
        data = ll.load_features(name, label=label)
        some = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
        train, test = data.train.take(some[:LEARNED]), data.test
        key = f"{name} {label or ''}".strip()
        found[key] = Data((train.z.double(), train.y), (test.z.double(), test.y))
    for key, data in found.items():
        other = next(other for name, other in found.items() if name.split()[0] != key.split()[0])
        data.further["other data"] = [other.asked[0]]
        yield key, data


def of_scikit_learn() -> Iterator[tuple[str, Data]]:
    """Sets that come with scikit-learn, raw, and made ones with covariances of their own."""
    for load in (load_digits, load_wine, load_breast_cancer):
        both = load()
        yield load.__name__[5:], Data(*split(both.data, both.target)[:2])
    for seed in range(4):
        z, y = make_classification(
            6000, 40 + 20 * seed, n_informative=10 + 5 * seed, n_redundant=5 * seed, n_classes=6,
            class_sep=1.0 + seed, random_state=seed,
        )  # fmt: skip
        yield f"made, {z.shape[1]} features", Data(*split(z, y)[:2])
    yield "blobs", Data(*split(*make_blobs(5000, 30, centers=12, random_state=0))[:2])


def image_features(root: str, weights: Path) -> dict[str, Any]:
    """Features of 11,000 images of CIFAR100 on two backbones, with several normalisations."""
    images, random = read_images("cifar100", root), torch.Generator().manual_seed(0)
    some = [torch.randperm(len(s), generator=random)[:n].sort().values
            for s, n in ((images.train, 8000), (images.test, 3000))]  # fmt: skip
    sides = [s.take(rows) for s, rows in zip((images.train, images.test), some, strict=True)]
    x = torch.cat([side.x for side in sides])  # type: ignore[misc]
    found: dict[str, Any] = {"y": torch.cat([side.labels["fine"] for side in sides]).numpy()}
    ways = {"trained": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
            "authors": AUTHORS["cifar100"], "imagenet": IMAGENET,
            "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))}  # fmt: skip
    for name in ("resnet20-cifar100", "resnet20-cifar10"):
        network, _ = load_backbone(name, next(weights.glob(f"{name[9:]}_*")), "cifar100")
        for way in ways if name.endswith("100") else ("trained", "authors"):
            with torch.inference_mode():
                parts = [network(prepare(part, ways[way])) for part in x.split(128)]
            found[f"{name}/{way}"] = torch.cat(parts).numpy()
    return found


def images(found: dict[str, Any]) -> Iterator[tuple[str, Data]]:
    """Each backbone and normalisation, beside the others."""
    names = [name for name in found if found[name].ndim == 2]
    for name in names:
        learned, asked, rows = split(found[name], found["y"])
        model = name.partition("/")[0]
        data = Data(learned, asked)
        for other in names:
            case = ALIKE[0] if other.startswith(f"{model}/") else OTHERS[0]
            if other != name:
                data.further.setdefault(case, []).append(
                    torch.from_numpy(found[other][rows]).double()
                )
        yield name, data


MODULES = (
    "numpy", "scipy.stats", "scipy.signal", "scipy.special", "scipy.optimize", "scipy.ndimage",
    "torch", "torch.nn", "sklearn.metrics", "sklearn.linear_model", "polars", "altair",
)  # fmt: skip


def texts() -> tuple[list[str], list[str]]:
    """A third of the paragraphs that document installed packages; the package is the label."""
    found, labels = [], []
    for module in MODULES:
        held = import_module(module)
        for name in sorted(n for n in dir(held) if not n.startswith("_")):
            said = inspect.getdoc(getattr(held, name)) or ""
            for part in said.split("\n\n")[:3]:
                text = " ".join(part.split())[:300]
                if len(text) > 30:
                    found.append(text)
                    labels.append(module)
    return found[::3], labels[::3]


def text_features(model: str) -> dict[str, Any]:
    """Embeddings of texts on one encoder, pooled in several ways, and of the layer before.

    And those of latent semantic analysis, another model with as many features.
    """
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    words, labels = texts()
    token, network = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    order = np.argsort([len(text) for text in words])
    found: dict[str, list[Tensor]] = {}
    unit = torch.nn.functional.normalize
    with torch.inference_mode():
        for start in range(0, len(words), 32):
            batch = [words[row] for row in order[start : start + 32]]
            read = token(batch, padding=True, truncation=True, max_length=96, return_tensors="pt")
            *_, before, last = network(**read, output_hidden_states=True).hidden_states
            there = read["attention_mask"][..., None].float()
            mean = (last * there).sum(1) / there.sum(1)
            made = {"mean": unit(mean), "first token": unit(last[:, 0]), "not of length 1": mean,
                    "layer before": unit((before * there).sum(1) / there.sum(1))}  # fmt: skip
            for name, z in made.items():
                found.setdefault(name, []).append(z)
    back = np.argsort(order)
    kept: dict[str, Any] = {name: torch.cat(z).numpy()[back] for name, z in found.items()}
    size = kept["mean"].shape[1]
    analysed = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(size, random_state=0))
    kept[WORDS] = normalize(analysed.fit_transform(words))
    return kept | {"y": np.unique(labels, return_inverse=True)[1]}


def of_texts(found: dict[str, Any]) -> Iterator[tuple[str, Data]]:
    """Each way to pool, beside the others."""
    names = [name for name in found if found[name].ndim == 2]
    for name in names:
        learned, asked, rows = split(found[name], found["y"])
        data = Data(learned, asked)
        for other in names:
            case = OTHERS[0] if WORDS in (name, other) else OTHERS[1]
            if other != name:
                data.further.setdefault(case, []).append(
                    torch.from_numpy(found[other][rows]).double()
                )
        yield f"texts, {name}", data


def cases(data: Data) -> Iterator[tuple[str, Tensor, list[Tensor]]]:
    """Yield each case: its name, the classes that a head has learned of it, and what is asked."""
    classes, (z, asked) = data.learned[1].unique(), data.asked
    half, two = classes[: len(classes) // 2], classes[:2]
    per_class = [z[asked == c] for c in classes]
    yield HONEST[0], classes, [z]
    yield HONEST[1], classes, [rows for rows in per_class if len(rows) >= ENOUGH]
    if len(half) > 1:
        yield HONEST[2], half, [z[~torch.isin(asked, half)]]
        yield HONEST[3], two, [z[torch.isin(asked, classes[2:4])]]
    shuffled = torch.randperm(z.shape[1], generator=torch.Generator().manual_seed(1))
    length = z.norm(dim=1, keepdim=True)
    made = {OTHERS[2]: [z[:, shuffled]], OTHERS[3]: [z / length], OTHERS[4]: [10 * z]}
    if float(length.std() / length.mean()) < 1e-3:
        del made[OTHERS[3]]  # they have it
    for case, rows in (made | data.further).items():
        yield case, classes, rows


def directions_of(name: str, data: Data, classes: Tensor) -> Directions | None:
    """Return how a head knows the rows of some classes."""
    z, y = data.learned
    mine = torch.isin(y, classes)
    head = ll.make_head(name, in_features=z.shape[1]).double()
    head.observe(z[mine][:LEARNED], y[mine][:LEARNED])
    return Directions.of(head)


def rate(directions: Directions, asked: list[Tensor], n: int) -> float | None:
    """Return how often ``n`` first rows are noticed; None: there are too few."""
    random, noticed = torch.Generator().manual_seed(0), []
    for _ in range(DRAWS):
        for rows in asked:
            drawn = rows[torch.randperm(len(rows), generator=random)[:n]]
            if len(drawn) >= ENOUGH:
                noticed.append(bool(directions.unlike(directions.coordinates(drawn))))
    return float(np.mean(noticed)) if noticed else None


def measured(data: Data, head: str, rows: int) -> Iterator[tuple[str, float]]:
    """Yield each case with how often it is noticed."""
    known: dict[int, Directions | None] = {}
    for case, classes, asked in cases(data):
        if len(classes) not in known:
            known[len(classes)] = directions_of(head, data, classes)
        directions = known[len(classes)]
        noticed = None if directions is None else rate(directions, asked, rows)
        if noticed is not None:
            yield case, noticed


def few_rows(sets: list[tuple[str, Data]]) -> str:
    """Return how often two new classes are taken for other features by an slda that looks early."""
    counts = ((2, 80), (4, 80), (2, 160), (8, 80), (2, 320), (16, 80))
    told = [f"{k} × {each}" for k, each in counts]
    lines = [f"| set | {' | '.join(told)} |", "|---|" + "---|" * len(told)]
    for name, data in sets:
        (z, y), cells = data.learned, []
        random, classes = np.random.default_rng(0), y.unique()
        for k, each in counts:
            warned = []
            for _ in range(DRAWS):
                order = torch.from_numpy(random.permutation(len(classes)))
                own, new = classes[order[:k]], classes[order[k : k + 2]]
                drawn = torch.from_numpy(random.permutation(len(y)))
                mine = [drawn[y[drawn] == c][:each] for c in own]
                asked = z[drawn[torch.isin(y[drawn], new)][:50]]
                if min(map(len, mine)) == each and len(asked) == 50:
                    rows = torch.cat(mine)
                    head = ll.make_head("slda", in_features=z.shape[1]).double()
                    head.observe(z[rows], torch.searchsorted(classes, y[rows]))
                    found = Directions.of(head)
                    assert found is not None
                    warned.append(bool(found.unlike(found.coordinates(asked))))
            cells.append(mean([float(np.mean(warned))] if warned else []))
        if any(cell != "–" for cell in cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every set, head and case."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--images", "--weights", "--texts", "--cache", "--out"):
        parser.add_argument(name)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--heads", default=",".join(HEADS))
    parser.add_argument(
        "--few", action="store_true", help="Look after few rows, which heads do not"
    )
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)

    def kept(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        place = Path(given.cache or ".") / f"{name}.npz"
        if not place.is_file():
            np.savez(place, **make())
        held = np.load(place)
        return {key: held[key] for key in held.files}

    sets = [*bundled(), *of_scikit_learn()]
    if given.images:
        sets += images(kept("images", lambda: image_features(given.images, Path(given.weights))))
    if given.texts:
        sets += of_texts(kept("texts", lambda: text_features(given.texts)))
    if given.few:
        first_rows.TO_BEGIN = 1
        print(few_rows(sets))
        return
    heads = given.heads.split(",")
    found: dict[tuple[str, str, str], float] = {}
    for name, data in sets:
        for head in heads:
            for case, noticed in measured(data, head, given.rows):
                found[name, case, head] = noticed
        print(name, flush=True)
    text = report(found, heads, given.rows)
    print(text)
    if given.out:
        Path(given.out).write_text(text)


def report(found: dict[tuple[str, str, str], float], heads: list[str], rows: int) -> str:
    """Return the tables: by case and head, and by set."""
    lines = [
        f"By case, mean over the sets, {rows} first rows:\n",
        f"| case | sets | {' | '.join(heads)} |",
        "|---|---|" + "---|" * len(heads),
    ]
    for case in (*HONEST, *ALIKE, *OTHERS):
        mine = {key: value for key, value in found.items() if key[1] == case}
        cells = [mean([v for key, v in mine.items() if key[2] == head]) for head in heads]
        lines.append(f"| {case} | {len({key[0] for key in mine})} | {' | '.join(cells)} |")
    full = [head for head in heads if head != "mean"]
    lines += [
        f"\nBy set, mean over {', '.join(full)}:\n",
        f"| set | {' | '.join((*HONEST, *ALIKE, *OTHERS))} |",
        "|---|" + "---|" * len((*HONEST, *ALIKE, *OTHERS)),
    ]
    for name in dict.fromkeys(key[0] for key in found):
        mine = {k: v for k, v in found.items() if k[0] == name and k[2] in full}
        order = (*HONEST, *ALIKE, *OTHERS)
        cells = [mean([v for key, v in mine.items() if key[1] == case]) for case in order]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def mean(rates: list[float]) -> str:
    """Return a mean in percent; of nothing a dash."""
    return f"{100 * np.mean(rates):.1f}" if rates else "–"


if __name__ == "__main__":
    main()
