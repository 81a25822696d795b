"""Wrong labels found by an audit, beside cleanlab with cross-validation.

    python -m benchmarks.audit --sets DIR [--rows 10000] [--out FILE]      # planted errors
    python -m benchmarks.audit --human FOLDER                              # what people relabelled
    python -m benchmarks.audit --coverage 200                              # is the interval right?
    python -m benchmarks.audit --scale 1000000 --features 384 --classes 100

DIR is what `python -m benchmarks.regret_sets` makes. Five in a hundred labels are changed, at
random or to the most similar class, and every method ranks all rows: AUROC of the changed ones, how
many of as many first rows are, and the processor time, all on one thread; what takes less than a
second is run three times, and the least time counts. cleanlab (PyPI) ranks by its own scores of
probabilities from five-fold cross-validation, by logistic regression or by 10 nearest neighbours;
it counts nothing and looks for no copies. The audit's time has all of this; "slda, ranking alone"
is what it takes to rank rows, as cleanlab does. FOLDER holds
CIFAR-10_human.pt and CIFAR-100_human.pt (github.com/UCSC-REAL/cifar-10-100n, in data) and
cifar10h-counts.npy (github.com/jcpeterson/cifar-10h, in data). --scale writes a features file,
which --audit FILE audits in a fresh process.
"""

import argparse
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
from threadpoolctl import threadpool_limits
from torch import Tensor

import lastlayer as ll
from lastlayer.labels.noise import Noise
from lastlayer.labels.out_of_fold import OutOfFold

RATE = 0.05
# Of draws by the noise model: the share of wrong labels, that of these which follow pairs of
# classes, and how far classes are apart.
DRAWN = ((0.05, 0.0), (0.0, 0.0), (0.02, 0.0), (0.05, 0.5), (0.2, 0.0))
APART = (0.4, 0.6, 1.0)
OURS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "slda": ("slda", {}),
    "qda": ("qda", {}),
    "random_slda, width 500": ("random_slda", {"width": 500}),
}
RANKING = "slda, ranking alone"
SHORT = 1.0  # seconds: what takes less is run three times
Rows = tuple[Tensor, Tensor]


class Case(NamedTuple):
    """How well and how fast a method ranks wrong labels, and what it counts."""

    auroc: float
    precision: float
    seconds: float  # of processor time
    counted: str = ""
    held: bool | None = None  # whether the interval has the number of wrong labels


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


def ranking(z: Tensor, y: Tensor) -> Tensor:
    """Return how suspicious each row is to an audit that does nothing else."""
    found = OutOfFold("slda", z, y, 0)
    noise = Noise.fit(found.of(torch.arange(len(y))), y, own=found.head._own_temperature())
    scores = torch.empty(len(y), dtype=torch.float64)
    for rows, logits in found.pieces():
        scores[rows] = noise.wrong(noise.probabilities(logits), y[rows]).sum(dim=1)
    return scores


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
    """Return what some work gives, and its processor time."""
    took: list[float] = []
    while not took or (min(took) < SHORT and len(took) < 3):
        start = time.process_time()
        found = work(*args)
        took.append(time.process_time() - start)
    return found, min(took)


def judged(scores: Tensor, wrong: Tensor) -> tuple[float, float]:
    """Return AUROC, and the share of wrong rows among as many first ones."""
    first = scores.argsort(descending=True)[: int(wrong.sum())]
    return roc_auc_score(wrong, scores), float(wrong[first].double().mean())


def cases(z: Tensor, y: Tensor, wrong: Tensor) -> dict[str, Case]:
    """Let every method rank rows of which some are wrong."""
    found = {}
    for method, (head, options) in OURS.items():
        (scores, audit), took = timed(ours, z, y, head, options)
        low, high = audit.interval
        counted = f"{audit.wrong:.0f} ({low:.0f} to {high:.0f})"
        held = low <= int(wrong.sum()) <= high
        found[method] = Case(*judged(scores, wrong), took, counted, held)
    scores, took = timed(ranking, z, y)
    found[RANKING] = Case(*judged(scores, wrong), took)
    for method, model in rivals().items():
        scores, took = timed(cleanlab, z, y, model)
        found[method] = Case(*judged(scores, wrong), took)
    return found


def table(found: dict[str, dict[str, Case]], say: Callable[[str], None]) -> None:
    """Write all cases: how well each method ranks, how long it takes, and what it counts."""
    methods = [*OURS, RANKING, *rivals()]
    for title, methods_of, cell in (
        ("AUROC, precision", methods, lambda case: f"{case.auroc:.3f}, {case.precision:.2f}"),
        ("Processor time, s", methods, lambda case: f"{case.seconds:.3g}"),
        ("Counted", [*OURS], lambda case: case.counted),
    ):
        say(f"\n{title}\n")
        say(f"| labels | {' | '.join(methods_of)} |")
        say(f"|---|{'---:|' * len(methods_of)}")
        for name, by in found.items():
            say(f"| {name} | {' | '.join(cell(by[method]) for method in methods_of)} |")


def summary(found: dict[str, dict[str, Case]], say: Callable[[str], None]) -> None:
    """Write in how many cases each method of ours is at least as good, or five times as fast."""
    n = len(found)
    say(f"\nOf {n} cases\n")
    say("| | beside | AUROC at least | precision at least | a fifth of the time | time, median |")
    say("|---|---|---:|---:|---:|---:|")
    for method in (*OURS, RANKING):
        for rival in rivals():
            pairs = [(by[method], by[rival]) for by in found.values()]
            ratios = [our.seconds / its.seconds for our, its in pairs]
            counts = (
                sum(our.auroc >= its.auroc for our, its in pairs),
                sum(our.precision >= its.precision for our, its in pairs),
                sum(ratio <= 0.2 for ratio in ratios),
            )
            numbers = " | ".join(str(count) for count in counts)
            say(f"| {method} | {rival} | {numbers} | {np.median(ratios):.2f} |")
        if method in OURS:
            held = sum(bool(by[method].held) for by in found.values())
            say(f"| {method} | its interval has the number: {held} | | | | |")


def planted(folder: Path | None, most: int, say: Callable[[str], None]) -> None:
    found = {}
    for name, read in streams(folder):
        z, truth = read()
        rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:most]
        z, truth = z[rows], truth[rows].unique(return_inverse=True)[1]
        size = f"{len(z):,} × {z.shape[1]}, {int(truth.max()) + 1} classes"
        for kind in ("random", "similar"):
            y = change(z, truth, kind, seed=1)
            wrong = y != truth
            found[f"{name} ({size}), {int(wrong.sum())} {kind}"] = cases(z, y, wrong)
            print(name, kind, flush=True)
    table(found, say)
    summary(found, say)


def human(folder: Path, say: Callable[[str], None]) -> None:
    """Rank labels that people gave against those of the data set, and the other way round."""
    made = (np.core.multiarray._reconstruct, "numpy.core.multiarray._reconstruct")
    with torch.serialization.safe_globals([np.ndarray, np.dtype, made, *_dtypes()]):
        ten = torch.load(folder / "CIFAR-10_human.pt", weights_only=True)
        hundred = torch.load(folder / "CIFAR-100_human.pt", weights_only=True)
    z, y = bundled("cifar10")
    fine, its = bundled("cifar100", "fine")
    assert np.array_equal(ten["clean_label"], y.numpy())
    assert np.array_equal(hundred["clean_label"], its.numpy())
    given = {
        f"CIFAR-10N, {name}": (z, torch.from_numpy(ten[name]).long(), y)
        for name in ("aggre_label", "random_label1", "worse_label")
    }
    given["CIFAR-100N"] = (fine, torch.from_numpy(hundred["noisy_label"]).long(), its)
    counts = np.load(folder / "cifar10h-counts.npy")
    test = ll.load_features("cifar10").test
    votes = torch.from_numpy(counts.argmax(axis=1))
    given["CIFAR-10's test labels, against most of 50 votes"] = (test.z.float(), test.y, votes)
    found = {}
    for name, (rows, label, truth) in given.items():
        wrong = label != truth
        found[f"{name}: {int(wrong.sum()):,} of {len(label):,}"] = cases(rows, label, wrong)
        print(name, flush=True)
    table(found, say)
    summary(found, say)


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
    began, busy = time.perf_counter(), time.process_time()
    found = ll.audit(file)
    took, busy = time.perf_counter() - began, time.process_time() - busy
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

    threadpool_limits(asked.threads)
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
