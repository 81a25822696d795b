"""The knn head beside scikit-learn's brute force and faiss: ratios, in one run, on the same data.

python benchmarks/knn.py                # 50,000 × 64 stored, 10,000 queries, k = 5, two threads
pip install faiss-cpu                   # for the comparison with faiss; nothing else needs it

The head and scikit-learn predict classes; faiss only finds the neighbours, which favours it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

import lastlayer as ll
from lastlayer.heads.neighbours.knn import KnnHead

try:
    import faiss
except ImportError:
    faiss = None

K, THREADS, TASKS = 5, 2, 100
Data = tuple[Tensor, Tensor, Tensor]  # stored features, their classes, queries


def random_data() -> Data:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(60_000, 64, generator=generator)
    return z[:50_000], torch.randint(10, (50_000,), generator=generator), z[50_000:]


def real_data() -> Data:
    data = ll.load_features("cifar100")
    return data.train.z.float(), data.train.y, data.test.z.float()


def contenders(data: Data) -> dict[str, Callable[[], np.ndarray]]:
    """Return functions that answer all queries; learning beforehand is not timed."""
    z, y, queries = data
    head = KnnHead(z.shape[1], k=K)
    head.observe(z, y)
    brute = KNeighborsClassifier(K, weights="distance", algorithm="brute", n_jobs=THREADS)
    brute.fit(z.numpy(), y.numpy())
    found = {
        "lastlayer": lambda: head.predict(queries).numpy(),
        "scikit-learn": lambda: brute.predict(queries.numpy()),
    }
    if faiss is not None:
        index = faiss.IndexFlatL2(z.shape[1])
        index.add(z.numpy())
        found["faiss"] = lambda: index.search(queries.numpy(), K)[1]
    return found


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, data: Data, repeats: int) -> None:
    """Time the sides in turn, so that other work on the machine affects all alike."""
    found = contenders(data)
    answers = {other: work() for other, work in found.items()}
    taken = [{other: seconds(work) for other, work in found.items()} for _ in range(repeats)]
    for other in list(found)[1:]:
        ratios = [turn[other] / turn["lastlayer"] for turn in taken]
        best = min(t[other] for t in taken) / min(t["lastlayer"] for t in taken)
        same = agreement(answers["lastlayer"], answers[other], data)
        print(
            f"{name:>8} | {other:>12} | {best:5.2f}× (best) {statistics.median(ratios):5.2f}× "
            f"(median of {repeats}) | {same:.4%}"
        )


def agreement(predicted: np.ndarray, theirs: np.ndarray, data: Data) -> float:
    """Count the queries that get the same class; faiss's neighbours vote here."""
    if theirs.ndim == 2:
        z, y, queries = (t.numpy() for t in data)
        near = theirs.reshape(-1)
        difference = queries.repeat(K, axis=0).astype(np.float64) - z[near]
        weight = 1 / np.maximum(np.linalg.norm(difference, axis=1), 1e-300).reshape(theirs.shape)
        votes = np.zeros((len(theirs), y.max() + 1))
        np.add.at(votes, (np.arange(len(theirs))[:, None], y[theirs]), weight)
        theirs = votes.argmax(axis=1)
    return float((predicted == theirs).mean())


def follow(data: Data) -> float:
    """Score the queries after each of many tasks: from scratch, and keeping the neighbours."""
    z, y, queries = data
    head, anew, kept = KnnHead(z.shape[1], k=K), 0.0, 0.0
    predict = head.predictor(queries)
    for part_z, part_y in zip(z.chunk(TASKS), y.chunk(TASKS), strict=True):
        head.observe(part_z, part_y)
        anew += seconds(lambda: head.predict(queries))
        kept += seconds(predict)
    return anew / kept


def peak_megabytes(work: Callable[[], object]) -> float:
    """Measure the peak memory of ``work`` above what was taken before."""
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(THREADS)
    if faiss is None:
        print("faiss is not installed: pip install faiss-cpu to compare with it")
    with threadpool_limits(THREADS):
        data = random_data()
        head = KnnHead(data[0].shape[1], k=K)
        head.observe(*data[:2])
        if Path("/proc/self/clear_refs").exists():
            print(
                f"memory besides the data: {peak_megabytes(lambda: head(data[2])):.0f} MB at most"
            )
        print("    data |      against | how many times as fast               | same class")
        compare("random", data, repeats)
        compare("cifar100", real_data(), repeats)
        print(f"{TASKS} tasks, scored after each: {follow(data):.0f}× by keeping the neighbours")


if __name__ == "__main__":
    main()
