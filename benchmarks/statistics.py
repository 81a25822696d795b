"""Exact heads against the limit of the same machine, in one run: learning, predicting, growth.

python -m benchmarks.statistics                  # with OMP_NUM_THREADS threads
python -m benchmarks.statistics --device cuda    # needs torch, numpy and safetensors only
python -m benchmarks.statistics --growth         # how the cost grows

Each line takes the median over repetitions in which the head and its limit take turns. Learning
includes the final fold. Raw timings go to a CSV file.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lastlayer.heads import Head, make_head

OUT = Path(__file__).parents[1] / "results" / "benchmarks"
Work = Callable[[], object]


class PlainRecursion:
    """The usual streaming LDA written plainly: one update of Σ and of a mean for each sample."""

    def __init__(self, h: int, n_classes: int) -> None:
        self.sigma = torch.zeros(h, h, dtype=torch.float64)
        self.mean = torch.zeros(n_classes, h, dtype=torch.float64)
        self.count = torch.zeros(n_classes, dtype=torch.float64)
        self.t = 0

    def observe(self, z: Tensor, y: Tensor) -> None:
        for x, c in zip(z, y, strict=True):
            v = x - self.mean[c]
            delta = torch.outer(v, v) * (self.t / (self.t + 1))
            self.sigma = (self.t * self.sigma + delta) / (self.t + 1)
            self.mean[c] += v / (self.count[c] + 1)
            self.count[c] += 1
            self.t += 1


class Bench:
    """Takes turns between works, prints medians and ratios, and keeps the raw timings."""

    def __init__(self, repeats: int, device: str) -> None:
        self.repeats, self.device = repeats, device
        self.rows: list[dict[str, object]] = []

    def seconds(self, work: Work) -> float:
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def compare(
        self, line: str, ours: tuple[Work, int], limit: tuple[Work, int], target: str = ""
    ) -> float:
        """Print µs per sample of both sides, and how many times as fast ours is."""
        taken: dict[str, list[float]] = {"ours": [], "beside": []}
        for turn in range(self.repeats + 1):
            for side, (work, n) in (("ours", ours), ("beside", limit)):
                took = self.seconds(work) / n
                if turn:  # the first warms up
                    taken[side].append(took)
                    self.rows.append(
                        {"line": line, "side": side, "turn": turn, "us_a_sample": took * 1e6}
                    )
        a, b = (statistics.median(taken[side]) for side in ("ours", "beside"))
        ratio = statistics.median(
            y / x for x, y in zip(taken["ours"], taken["beside"], strict=True)
        )
        print(f"{line:58} {a * 1e6:10.3f} {b * 1e6:10.3f} {ratio:8.2f}  {target}", flush=True)
        return a

    def write(self, name: str) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        with (OUT / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, ["line", "side", "turn", "us_a_sample"])
            writer.writeheader()
            writer.writerows(
                {**row, "us_a_sample": f"{row['us_a_sample']:.4f}"} for row in self.rows
            )
        print(f"raw timings: {(OUT / name).relative_to(Path.cwd())}")


def data(n: int, h: int, n_classes: int, **kind: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, h, generator=generator, dtype=kind.get("dtype", torch.float64))
    return z, torch.randint(n_classes, (n,), generator=generator)


def learn(head: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Observe, and fold in waiting rows, as if each call had been folded at once."""
    for z, y in batches:
        head.observe(z, y)
    if isinstance(head, Head):
        head.statistics.fold()


def batches(z: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(z.split(size), y.split(size), strict=True))


def symmetric_product(z: Tensor) -> Work:
    """Return the bare product on the same threads: BLAS's syrk, in place, as it is fastest."""
    from scipy.linalg.blas import dsyrk  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    columns, into = z.numpy().T, torch.zeros(z.shape[1], z.shape[1], dtype=z.dtype).numpy().T

    def work() -> None:
        with threadpool_limits(torch.get_num_threads(), user_api="blas"):
            dsyrk(1.0, columns, beta=1.0, c=into, overwrite_c=1)

    return work


HEADER = f"{'':58} {'ours, µs':>10} {'beside':>10} {'ratio':>8}  target"


def learning(bench: Bench) -> None:
    print(f"\nlearning, float64, a sample\n{HEADER}")
    for h in (64, 512):
        z, y = data(2048, h, 10)
        some = 400 if h == 64 else 100
        plain = batches(z[:some], y[:some], 1)
        for size, target in ((1, "3"), (32, "20"), (264, ""), (2000, "")):
            parts = batches(z, y, size)
            bench.compare(
                f"slda, {h} features, {size} a call / plain recursion",
                (lambda p=parts, h=h: learn(make_head("slda", h, 10), p), len(y)),
                (lambda p=plain, h=h: learn(PlainRecursion(h, 10), p), some),
                target,
            )
    few: dict[int, float] = {}
    for h in (512, 768):
        for n_classes in (10, 1000, 10_000):
            z, y = data(2000, h, n_classes)
            head = make_head("slda", h, n_classes)
            took = bench.compare(
                f"slda, {h} features, {n_classes:,} classes, 2,000 a call / syrk",
                (lambda b=[(z, y)], one=head: learn(one, b), len(y)),
                (symmetric_product(z), len(y)),
                "0.6",
            )
            few.setdefault(h, took)
            print(f"{'':58} {took / few[h]:10.2f} times 10 classes {'':10} 1.3")
    for n_classes in (10, 1000):
        z, y = data(2000, 768, n_classes)
        head = make_head("mean", 768, n_classes)
        bench.compare(
            f"mean, 768 features, {n_classes:,} classes, 2,000 a call / sum of rows",
            (lambda b=[(z, y)], one=head: learn(one, b), len(y)),
            (lambda z=z: z.sum(dim=0), len(y)),
            "0.25",
        )


def predicting(bench: Bench) -> None:
    print(f"\npredicting, a sample\n{HEADER}")
    z, y = data(20_000, 768, 1000)
    for name in ("mean", "slda"):
        head = make_head(name, 768, 1000)
        head.observe(z, y)
        rows = head.statistics.mean.clone()
        bench.compare(
            f"{name}, 768 features, 1,000 classes / bare product",
            (lambda head=head: head.predict(z), len(z)),
            (lambda rows=rows: z @ rows.mT, len(z)),
            "0.6" if name == "mean" else "",
        )
    for h in (64, 512):
        z, y = data(64, h, 10)
        head, plain = make_head("slda", h, 10), PlainRecursion(h, 10)
        head.observe(z, y)
        plain.observe(z, y)

        def turn(z: Tensor = z, y: Tensor = y, head: Head = head) -> None:
            for row in range(20):
                head.observe(z[row : row + 1], y[row : row + 1])
                head.predict(z[row : row + 1])

        def plainly(z: Tensor = z, y: Tensor = y, one: PlainRecursion = plain, h: int = h) -> None:
            for row in range(20):
                one.observe(z[row : row + 1], y[row : row + 1])
                inverse = torch.linalg.inv(one.sigma + 1e-4 * torch.eye(h, dtype=torch.float64))
                weight = one.mean @ inverse
                bias = (one.mean * weight).sum(dim=1) / 2
                (z[row : row + 1] @ weight.mT - bias).argmax(dim=1)

        bench.compare(
            f"slda, {h} features, observe one, predict one / plainly", (turn, 20), (plainly, 20)
        )


def beside_scikit_learn(bench: Bench) -> None:
    from sklearn.linear_model import SGDClassifier  # noqa: PLC0415
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415

    from lastlayer.estimator import HeadClassifier  # noqa: PLC0415

    print(f"\nbeside scikit-learn, one sample a call\n{HEADER}")
    z, y = data(15_000, 384, 10, dtype=torch.float32)
    query = [z[i : i + 1] + 0.1 for i in range(20)]
    head = make_head("knn", 384)
    head.observe(z, y)
    brute = KNeighborsClassifier(5, weights="distance", algorithm="brute").fit(z.numpy(), y.numpy())
    ours = HeadClassifier("knn").fit(z.numpy(), y.numpy())
    theirs = (lambda: [brute.predict(q.numpy()) for q in query], 20)
    line = "one query, 15,000 × 384 stored / KNeighborsClassifier"
    bench.compare(f"knn, {line}", (lambda: [head.predict(q) for q in query], 20), theirs, "1")
    bench.compare(
        f"estimator, {line}", (lambda: [ours.predict(q.numpy()) for q in query], 20), theirs, "1"
    )
    x, labels = (t.numpy() for t in data(500, 64, 10))
    for name in ("mean", "slda"):
        one = HeadClassifier(name).partial_fit(x, labels)
        for other in (SGDClassifier(), GaussianNB()):
            other.partial_fit(x, labels, classes=range(10))
            for what, call in (
                ("partial_fit", lambda c, i: c.partial_fit(x[i : i + 1], labels[i : i + 1])),
                ("predict", lambda c, i: c.predict(x[i : i + 1])),
            ):
                one.predict(x[:1])
                bench.compare(
                    f"estimator {name}, {what} one, 64 features / {type(other).__name__}",
                    (lambda one=one, call=call: [call(one, i) for i in range(30)], 30),
                    (lambda other=other, call=call: [call(other, i) for i in range(30)], 30),
                )


def growth(bench: Bench) -> None:
    print(f"\nhow slda's learning grows, beside 512 features, 100 classes, 2,000 a call\n{HEADER}")
    base = {"n": 4000, "h": 512, "classes": 100, "size": 2000}
    z, y = data(4000, 512, 100)
    usual = (lambda: learn(make_head("slda", 512, 100), batches(z, y, 2000)), 4000)
    for name, values in {
        "n": (1000, 4000, 16_000), "h": (64, 128, 256, 512, 1024),
        "classes": (10, 100, 1000, 10_000), "size": (1, 8, 64, 264, 2000, 4000),
    }.items():  # fmt: skip
        for value in values:
            case = {**base, name: value}
            z1, y1 = data(case["n"], case["h"], case["classes"])
            parts = batches(z1, y1, case["size"])

            def work(case: dict[str, int] = case, parts: Any = parts) -> None:
                learn(make_head("slda", case["h"], case["classes"]), parts)

            bench.compare(f"{name} = {value:,}", (work, case["n"]), usual)


def on_a_gpu(bench: Bench) -> None:
    print(f"\n{torch.cuda.get_device_name()}, 768 features, 1,000 classes\n{HEADER}")
    z, y = (t.cuda() for t in data(20_000, 768, 1000, dtype=torch.float32))
    wide = z.double()
    into = torch.zeros(768, 768, dtype=torch.float64, device="cuda")

    def product() -> None:
        into.addmm_(wide.mT, wide)

    for kind, rows in (("float32", z), ("float64", wide)):
        head = make_head("slda", 768, 1000).cuda()
        bench.compare(
            f"slda, {kind}, 20,000 a call, on the device / bare float64 product",
            (lambda rows=rows, head=head: [head.observe(rows, y) for _ in range(10)], 200_000),
            (lambda: [product() for _ in range(10)], 200_000),
            "0.5",
        )
    n = 1_280_000
    much = torch.randn(n, 768, pin_memory=True)
    labels = torch.randint(1000, (n,))
    there, known = much.cuda(), labels.cuda()
    head = make_head("slda", 768, 1000).cuda()
    took = bench.compare(
        "slda, 1.28 million × 768 float32, on the device / product",
        (lambda: head.observe(there, known), n),
        (lambda: [product() for _ in range(n // 20_000)], n),
    )
    print(f"{'':58} {took * n:10.3f} s {'':16} 0.1")
    room = torch.empty_like(there)
    for kind, rows in (("pinned", much), ("ordinary", much[: n // 4].clone())):
        head = make_head("slda", 768, 1000).cuda()
        m = len(rows)
        bench.compare(
            f"slda, {m:,} × 768 float32, from {kind} host memory / transfer",
            (lambda rows=rows, m=m, head=head: head.observe(rows, labels[:m]), m),
            (lambda rows=rows, m=m: room[:m].copy_(rows, non_blocking=True), m),
            "0.8",
        )
    query = wide[:20_000]
    mean = make_head("mean", 768, 1000).cuda()
    mean.observe(z, y)
    rows = mean.statistics.mean.clone()
    bench.compare(
        "mean, predicting 20,000 × 768 / bare float64 product",
        (lambda: mean.predict(query), 20_000),
        (lambda: query @ rows.mT, 20_000),
        "0.6",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--growth", action="store_true")
    asked = parser.parse_args()
    bench = Bench(asked.repeats, asked.device)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {asked.repeats} turns")
    if asked.device == "cuda":
        on_a_gpu(bench)
        bench.write("statistics-cuda.csv")
    elif asked.growth:
        growth(bench)
        bench.write("statistics-growth.csv")
    else:
        learning(bench)
        predicting(bench)
        beside_scikit_learn(bench)
        bench.write("statistics.csv")


if __name__ == "__main__":
    main()
