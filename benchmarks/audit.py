"""Wrong labels found by an audit, beside cleanlab with cross-validation.

    python -m benchmarks.audit --sets DIR [--rows 10000] [--out FILE]      # planted errors
    python -m benchmarks.audit --human FOLDER                              # what people relabelled
    python -m benchmarks.audit --coverage 200                              # is the interval right?
    python -m benchmarks.audit --scale 1000000 --features 384 --classes 100

DIR is what `python -m benchmarks.regret_sets` makes. Five in a hundred labels are changed, at
random or to the most similar class, and every method ranks all rows: AUROC of the changed ones, how
many of as many first rows are, and the time, on one thread. cleanlab (PyPI) ranks by its own scores
of probabilities from five-fold cross-validation, by logistic regression or by 10 nearest
neighbours. FOLDER holds CIFAR-10_human.pt and CIFAR-100_human.pt (CIFAR-10N, CIFAR-100N) and
cifar10h-counts.npy. --scale writes a features file, which --audit FILE audits in a fresh process.
"""

import argparse
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.regret_sets import read_set
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import lastlayer as ll

RATE = 0.05
# Of draws by the noise model: the share of wrong labels, that of these which follow pairs of
# classes, and how far classes are apart.
DRAWN = ((0.05, 0.0), (0.0, 0.0), (0.02, 0.0), (0.05, 0.5), (0.2, 0.0))
APART = (0.4, 0.6, 1.0)
OURS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "slda": ("slda", {}),
    "qda": ("qda", {}),
    "random_slda": ("random_slda", {"width": 500}),
}
Rows = tuple[Tensor, Tensor]


def bundled(name: str, label: str | None = None) -> Rows:
    data = ll.load_features(name, label=label)
    return data.train.z.float(), data.train.y


def streams(folder: Path | None) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Yield the name of each set with a function for its rows."""
    yield "cifar10", lambda: bundled("cifar10")
    yield "cifar100 fine", lambda: bundled("cifar100", "fine")
    yield "cifar100 coarse", lambda: bundled("cifar100", "coarse")

    def digits() -> Rows:
        found = datasets.load_digits()
        return torch.tensor(found.data).float(), torch.tensor(found.target).long()

    yield "digits", digits
    for file in sorted(folder.glob("*.npz")) if folder is not None else ():

        def read(file: Path = file) -> Rows:
            data = read_set(file)
            both = [torch.cat([getattr(s, name) for s in (data.train, data.test)]) for name in "zy"]
            return both[0].float(), both[1]

        yield file.stem, read


def change(z: Tensor, y: Tensor, kind: str, seed: int) -> Tensor:
    """Return labels of which some are of another class: any, or the one with the nearest mean."""
    random = torch.Generator().manual_seed(seed)
    k = int(y.max()) + 1
    if kind == "random":
        other = (y + torch.randint(1, k, y.shape, generator=random)) % k
    else:
        means = torch.stack([z[y == c].mean(dim=0) for c in range(k)])
        apart = torch.cdist(means, means)
        other = apart.fill_diagonal_(torch.inf).argmin(dim=1)[y]
    return torch.where(torch.rand(len(y), generator=random) < RATE, other, y)


def ours(z: Tensor, y: Tensor, head: str, options: dict[str, Any]) -> tuple[Tensor, Any]:
    """Return how suspicious each row is to an audit, and the audit."""
    found = ll.audit(ll.Features.from_arrays(z, y, test=(z[:1], y[:1])), head, **options)
    scores = torch.full((len(y),), -1.0, dtype=torch.float64)
    scores[torch.from_numpy(found.table["row"].to_numpy().copy())] = torch.from_numpy(
        found.table["score"].to_numpy().copy()
    )
    return scores, found


def cleanlab(z: Tensor, y: Tensor, model: Any) -> Tensor:
    """Return how suspicious each row is to cleanlab."""
    from cleanlab.rank import get_label_quality_scores  # noqa: PLC0415  (only this needs it)

    p = cross_val_predict(model, z.numpy(), y.numpy(), cv=5, method="predict_proba")
    return -torch.from_numpy(get_label_quality_scores(y.numpy(), p))


def rivals() -> dict[str, Any]:
    return {
        "cleanlab, logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=1000)
        ),
        "cleanlab, 10 neighbours": KNeighborsClassifier(10),
    }


def timed(work: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(*args), time.perf_counter() - start


def judged(scores: Tensor, wrong: Tensor) -> tuple[float, float]:
    """Return AUROC, and the share of wrong rows among as many first ones."""
    first = scores.argsort(descending=True)[: int(wrong.sum())]
    return roc_auc_score(wrong, scores), float(wrong[first].double().mean())


def planted(folder: Path | None, most: int, say: Callable[[str], None]) -> None:
    say("| set | rows | errors | method | AUROC | precision | seconds | counted | interval |")
    say("|---|---:|---|---|---:|---:|---:|---:|---|")
    for name, read in streams(folder):
        z, truth = read()
        rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:most]
        z, truth = z[rows], truth[rows].unique(return_inverse=True)[1]
        for kind in ("random", "similar"):
            y = change(z, truth, kind, seed=1)
            wrong = y != truth
            say_of = f"| {name} | {len(z)} | {int(wrong.sum())} {kind} |"
            for method, (head, options) in OURS.items():
                (scores, found), took = timed(ours, z, y, head, options)
                auroc, precision = judged(scores, wrong)
                low, high = found.interval
                about = f"{found.wrong:.0f} | {low:.0f} to {high:.0f} |"
                say(f"{say_of} {method} | {auroc:.4f} | {precision:.3f} | {took:.2f} | {about}")
            for method, model in rivals().items():
                scores, took = timed(cleanlab, z, y, model)
                auroc, precision = judged(scores, wrong)
                say(f"{say_of} {method} | {auroc:.4f} | {precision:.3f} | {took:.2f} | | |")


def human(folder: Path, say: Callable[[str], None]) -> None:
    """Rank labels that people gave against those of the data set, and the other way round."""
    say("| labels | rows | wrong | method | AUROC | precision | seconds | counted | interval |")
    say("|---|---:|---:|---|---:|---:|---:|---:|---|")
    made = (np.core.multiarray._reconstruct, "numpy.core.multiarray._reconstruct")
    safe = [np.ndarray, np.dtype, made, *_dtypes()]
    with torch.serialization.safe_globals(safe):
        ten = torch.load(folder / "CIFAR-10_human.pt", weights_only=True)
        hundred = torch.load(folder / "CIFAR-100_human.pt", weights_only=True)
    z, y = bundled("cifar10")
    assert np.array_equal(ten["clean_label"], y.numpy())
    cases = [
        (f"CIFAR-10N {name}", z, torch.from_numpy(ten[name]).long(), y)
        for name in ("aggre_label", "random_label1", "worse_label")
    ]
    fine, its = bundled("cifar100", "fine")
    order = torch.from_numpy(hundred["clean_label"]).long()
    assert torch.equal(order, its)
    cases.append(("CIFAR-100N", fine, torch.from_numpy(hundred["noisy_label"]).long(), its))
    counts = np.load(folder / "cifar10h-counts.npy")
    test = ll.load_features("cifar10").test
    votes = torch.from_numpy(counts.argmax(axis=1))
    cases.append(("CIFAR-10 test, against most of 50 votes", test.z.float(), test.y, votes))
    for name, z, given, truth in cases:
        wrong = given != truth
        for method, (head, options) in OURS.items():
            (scores, found), took = timed(ours, z, given, head, options)
            auroc, precision = judged(scores, wrong)
            low, high = found.interval
            say(
                f"| {name} | {len(z)} | {int(wrong.sum())} | {method} | {auroc:.4f} | "
                f"{precision:.3f} | {took:.1f} | {found.wrong:.0f} | {low:.0f} to {high:.0f} |"
            )


def _dtypes() -> list[Any]:
    return [type(np.dtype(kind)) for kind in (np.int64, np.int32, np.uint8)]


def coverage(draws: int, say: Callable[[str], None]) -> None:
    """Count how often the interval holds the number of wrong labels, drawn by the noise model."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labels"))
    from wrong_labels import draw  # noqa: PLC0415  (the tests draw by the same model)

    say("| apart | accuracy | wrong | alike | held | counted | were wrong | flagged |")
    say("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for rate, alike in DRAWN:
        for apart in APART:
            held, counted, were, flagged, right = 0, [], [], [], []
            for seed in range(draws):
                rows = draw(1500, 6, 12, apart=apart, rate=rate, alike=alike, seed=seed)
                found = ll.audit(
                    ll.Features.from_arrays(rows.z, rows.y, test=(rows.z[:9], rows.y[:9]))
                )
                low, high = found.interval
                held += low <= int(rows.wrong.sum()) <= high
                counted.append(found.wrong)
                were.append(int(rows.wrong.sum()))
                flagged.append(found.suspects.height / len(rows.y))
                right.append(found.known.left_out)
            say(
                f"| {apart} | {np.mean(right):.1%} | {rate:.0%} | {alike:.0%} "
                f"| {held / draws:.1%} | {np.mean(counted):.1f} | {np.mean(were):.1f} "
                f"| {np.mean(flagged):.2%} |"
            )


def scale(n: int, h: int, k: int, say: Callable[[str], None]) -> None:
    """Audit a large features file; the memory is what the process adds, without mapped files."""
    file = Path(f"audit-{n}.safetensors")
    random = torch.Generator().manual_seed(0)
    means = torch.randn(k, h, generator=random)
    y = torch.randint(k, (n,), generator=random)
    z = torch.empty(n, h, dtype=torch.float16)
    for rows in torch.arange(n).split(1 << 15):
        z[rows] = (0.25 * means[y[rows]] + torch.randn(len(rows), h, generator=random)).half()
    y = torch.where(
        torch.rand(n, generator=random) < RATE, torch.randint(k, (n,), generator=random), y
    )
    ll.Features.from_arrays(z, y, test=(z[:1000], y[:1000])).save(file)
    del z, y, means
    print(f"made {file}: run with --audit {file}", flush=True)


def audited(file: Path, say: Callable[[str], None]) -> None:
    """Audit a features file in this process, and say what it took."""
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            own = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            most[0] = max(most[0], int(own.split()[1]))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    began = time.process_time()
    found, took = timed(ll.audit, file)
    busy = time.process_time() - began
    done.set()
    say(f"{file.name}: {took:.0f} s, {busy:.0f} s of one core, {most[0] / 2**20:.2f} GB of its own")
    say(found.sentences[0])


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--human", type=Path)
    parser.add_argument("--coverage", type=int)
    parser.add_argument("--scale", type=int)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--audit", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(asked.threads)

    def say(line: str) -> None:
        print(line, flush=True)
        if asked.out is not None:
            with asked.out.open("a") as out:
                out.write(f"{line}\n")

    if asked.human is not None:
        human(asked.human, say)
    elif asked.coverage is not None:
        coverage(asked.coverage, say)
    elif asked.scale is not None:
        scale(asked.scale, asked.features, asked.classes, say)
    elif asked.audit is not None:
        audited(asked.audit, say)
    else:
        planted(asked.sets, asked.rows, say)


if __name__ == "__main__":
    main()
