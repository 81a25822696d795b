"""Whether a watch keeps its promises, and what it sees beside other detectors.

python -m benchmarks.watch                     all but what needs river, MAPIE or images
python -m benchmarks.watch quiet --streams 1000 --jobs 2
python -m benchmarks.watch between|learning|classes|since|living|size
python -m benchmarks.watch shifts --images ROOT --weights DIR        river and MAPIE are needed
python -m benchmarks.watch risk                                      MAPIE is needed

Rows are drawn with replacement from the bundled test features; a head has learned the training
rows; calibration and stream are drawn anew each time. What a head that does not learn says of a row
is computed once, and the watch itself bets on it.

quiet     streams without change: the share with a false alarm, for each question, at 5 % each
between   the same, where rows between false alarms are promised: how many alarms there are
learning  the same, while heads learn the stream in batches of 500, after 2,000 rows
classes   one class shifted by as much as its spread: named within 500 of its rows, and false names
since     how often the interval of the start of a change holds it, and that of its size the size
shifts    six real shifts after 5,000 rows: share found within 5,000 more, and after how many
living    how much is turned away along a stream that drifts, with and without a living calibration
risk      MAPIE's RiskMonitoring on the same answers
size      ten million rows: memory, and time a row in batches of 1,000
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.heads import Calibration, Head
from lastlayer.heads.watch_reference import Reference, ahead, projected
from lastlayer.live.watch.betting import most_errors
from lastlayer.live.watch.compared import Judged
from lastlayer.live.watch.rules import QUESTIONS, WORSE
from lastlayer.live.watch.watch import Watch

BETWEEN = 2000  # rows between false alarms that are promised
ROWS, CALIBRATION = 10_000, {"cifar10": 2000, "cifar100": 5000}


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows to draw from, and what a head says of each."""

    z: Tensor
    y: np.ndarray[Any, Any]
    u: np.ndarray[Any, Any]
    novelty: np.ndarray[Any, Any]
    logits: Tensor

    @classmethod
    def of(cls, head: Head, z: Tensor, y: Tensor) -> "Pool":
        logits, novelty = head.judge(z)
        return cls(z, y.numpy(), projected(z), novelty.numpy(), logits)

    @property
    def given(self) -> np.ndarray[Any, Any]:
        return self.logits.argmax(dim=1).numpy()

    @property
    def wrong(self) -> np.ndarray[Any, Any]:
        return self.given != self.y

    def rows(self, drawn: Any, y: Any = None) -> Judged:
        """Return rows as a watch sees them, with their labels or with others."""
        own, logits = self.y[drawn] if y is None else y, self.logits[drawn]
        far = ahead(logits, torch.from_numpy(own))
        return Judged(self.u[drawn], self.novelty[drawn], own, self.given[drawn] != own, far)


@cache
def pool(name: str) -> tuple[Head, Pool]:
    torch.set_num_threads(1)
    data = ll.load_features(name)
    head = ll.make_head("slda", in_features=64)
    head.observe(data.train.z, data.train.y)
    return head, Pool.of(head, data.test.z.double(), data.test.y)


def calibrated(head: Head, of: Pool, drawn: Any) -> Calibration:
    """Return what ``calibrate`` would, from what is known of the rows; no temperature is needed."""
    novelty, y = torch.from_numpy(of.novelty[drawn]), torch.from_numpy(of.y[drawn])
    wrong, far = torch.from_numpy(of.wrong[drawn]), ahead(of.logits[drawn], y)
    about = Reference.of(of.z[drawn], y, novelty, wrong, far, head.n_classes)
    return replace(Calibration.of(1.0, novelty), reference=about.document())


def watch_of(name: str, rng: np.random.Generator, **promise: float) -> tuple[Watch, Pool]:
    head, of = pool(name)
    head.calibration = calibrated(head, of, rng.integers(len(of.y), size=CALIBRATION[name]))
    return Watch(head, reset=True, **promise), of


def upper(k: int, n: int) -> str:
    return f"{k} of {n}; 95 % upper limit {100 * float(most_errors(k, n, 0.05)):.2f} %"


# Streams without change.


def quiet_stream(seed: int, name: str) -> list[str]:
    rng = np.random.default_rng([1, seed])
    watch, of = watch_of(name, rng, false_alarms=0.15)  # 5 % for each of three questions
    return [a.question for a in watch._take(of.rows(rng.integers(len(of.y), size=ROWS)))]


def stream_for_ever(seed: int, name: str) -> int:
    rng = np.random.default_rng([9, seed])
    watch, of = watch_of(name, rng, rows=BETWEEN)
    return len(watch._take(of.rows(rng.integers(len(of.y), size=ROWS))))


def tell_between(n: int, jobs: int) -> None:
    for name in CALIBRATION:
        found = np.array(list(many(partial(stream_for_ever, name=name), range(n), jobs)))
        most = found.mean() + 1.645 * found.std(ddof=1) / np.sqrt(n)
        rows = f"a false alarm in {ROWS / max(found.mean(), 1 / n):,.0f} rows or more"
        print(f"| {name} | {found.sum()} alarms in {n} × {ROWS:,} rows | {rows} | 95 % upper limit "
              f"{most:.3f} a stream; promised {ROWS / BETWEEN:g} |", flush=True)  # fmt: skip


def learning_stream(seed: int, name: str, kind: str = "slda") -> list[str]:
    rng = np.random.default_rng([2, seed])
    data = _data(name)
    head = ll.make_head(kind, in_features=64)
    first = rng.integers(len(data.test), size=2000)
    draw = partial(rng.integers, len(data.test))
    for some in np.array_split(first, 8):
        head.observe(data.test.z[some].double(), data.test.y[some])
    while True:
        drawn = draw(size=CALIBRATION[name])
        if not (head.seen & (data.test.y[drawn].bincount(minlength=head.n_classes) == 0)).any():
            break
    head.calibrate(data.test.z[drawn].double(), data.test.y[drawn])
    watch, found = Watch(head, 0.15), []
    for _ in range(ROWS // 500):
        some = draw(size=500)
        z, y = data.test.z[some].double(), data.test.y[some]
        found += [a.question for a in watch.see_rows(z, y)]
        head.observe(z, y)
    return found


@cache
def _data(name: str) -> ll.Features:
    torch.set_num_threads(1)
    return ll.load_features(name)


def many(work: Callable[[int], Any], seeds: range, jobs: int) -> Iterator[Any]:
    if jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as runner:
        yield from runner.map(work, seeds, chunksize=max(1, len(seeds) // (8 * jobs)))


def tell_false_alarms(work: Callable[..., list[str]], what: str, n: int, jobs: int) -> None:
    for name in CALIBRATION:
        found = [set(one) for one in many(partial(work, name=name), range(n), jobs)]
        for question in QUESTIONS:
            false = upper(sum(question in f for f in found), n)
            print(f"| {what} | {name} | {question} | {false} |", flush=True)


def tell_learning(n: int, jobs: int) -> None:
    tell_false_alarms(learning_stream, "learning slda", n, jobs)
    for kind in ("mean", "linear", "cosine+single"):
        work = partial(learning_stream, kind=kind)
        tell_false_alarms(work, f"learning {kind}", max(n // 4, 1), jobs)


# One class that moves, and since when.


def shifted_class(seed: int, name: str, part: float = 1.0) -> dict[str, Any]:
    """Shift one class in a random direction; ‖shift‖² is a part of the trace of its covariance."""
    rng = np.random.default_rng([3, seed])
    watch, of = watch_of(name, rng)
    head, c = watch.head, int(rng.integers(watch.head.n_classes))
    quiet = rng.integers(len(of.y), size=int(rng.integers(1000, 8000)))
    watch._take(of.rows(quiet))
    own = np.nonzero(of.y == c)[0]
    shift = rng.standard_normal(64)
    length = np.sqrt(part * of.z[own].var(dim=0).sum().item())
    z = of.z.clone()
    z[own] += torch.from_numpy(shift * length / np.linalg.norm(shift))
    moved = Pool.of(head, z[own], torch.from_numpy(of.y[own]))
    after = {"u": of.u.copy(), "novelty": of.novelty.copy(), "logits": of.logits.clone()}
    for field, values in after.items():
        values[own] = getattr(moved, field)
    changed = Pool(z, of.y, **after)
    before, seen = int((of.y[quiet] == c).sum()), 0
    while seen < 500:
        drawn = rng.integers(len(of.y), size=20 * head.n_classes)
        watch._take(changed.rows(drawn))
        seen += int((of.y[drawn] == c).sum())
        classes = watch.report().verdicts[2].classes
        if classes:
            break
    name_of = watch._name(c)
    found = classes.get(name_of)
    return {
        "found": name_of in classes, "names": len(classes), "seen": seen,
        "false": sum(other != name_of for other in classes),
        "covered": None if found is None else found.first <= before <= found.last,
    }  # fmt: skip


def tell_classes(n: int, jobs: int) -> None:
    for name in CALIBRATION:
        for part in (1.0, 0.25, 0.0):
            found = list(many(partial(shifted_class, name=name, part=part), range(n), jobs))
            hits = [f for f in found if f["found"]]
            names, false = (sum(f[key] for f in found) for key in ("names", "false"))
            rows = f"{np.median([f['seen'] for f in hits]):.0f}" if hits else ""
            share = f"{100 * len(hits) / n:.1f} %" if part else ""
            print(f"| {name} | {part:g} | {share} | {rows} | {false} of {names} |", flush=True)


def with_more_errors(of: Pool, rng: np.random.Generator, drawn: Any, change: int, to: float) -> Any:
    """Return labels (n,) to which answers are wrong as often as asked, from some row on."""
    usual, y = of.wrong.mean(), of.y[drawn]
    worse = rng.random(len(drawn)) < max(to - usual, 0) / (1 - usual)
    worse &= (np.arange(len(drawn)) >= change) & (of.given[drawn] == y)
    classes = of.logits.shape[1]
    return np.where(worse, (y + rng.integers(1, classes, size=len(y))) % classes, y)


def since_stream(seed: int, name: str, to: float) -> tuple[bool, bool, int, int] | None:
    """Let errors become more frequent, and see what is said of the beginning."""
    rng = np.random.default_rng([4, seed])
    watch, of = watch_of(name, rng)
    change = int(rng.integers(500, 9000))
    drawn = rng.integers(len(of.y), size=ROWS + 10_000)
    y = with_more_errors(of, rng, drawn, change, to)
    found = None
    for begin in range(0, len(drawn), 500):
        some = slice(begin, begin + 500)
        part = of.rows(drawn[some], y[some])
        if any(a.question == WORSE for a in watch._take(part)):
            found = watch.report().verdicts[0].finding
            break
    if found is None or not found.rows or watch.report().verdicts[0].row <= change:
        return None  # nothing is found, or something that is not there
    expected = np.where(np.arange(len(drawn)) >= change, to, of.wrong.mean())
    mean = expected[found.since : found.since + found.rows].mean()
    return (
        found.first <= change <= found.last, found.size.low <= mean <= found.size.high,
        found.last - found.first, abs(found.since - change),
    )  # fmt: skip


def tell_since(n: int, jobs: int) -> None:
    for name, to in (("cifar10", 0.45), ("cifar10", 0.6), ("cifar100", 0.5), ("cifar100", 0.7)):
        found = [f for f in many(partial(since_stream, name=name, to=to), range(n), jobs) if f]
        start, size = (np.mean([f[place] for f in found]) for place in (0, 1))
        wide, off = (np.median([f[place] for f in found]) for place in (2, 3))
        says = f"{len(found)} of {n} | {100 * start:.0f} % | {wide:.0f} | {off:.0f}"
        print(f"| {name} | {100 * to:.0f} % | {says} | {100 * size:.0f} % |", flush=True)


# A calibration that lives.


def tell_living() -> None:
    """Let the features of a learning head's stream grow slowly, to twice their length."""
    data = _data("cifar10")
    rng = np.random.default_rng(5)
    learned = rng.integers(len(data.train), size=5000)
    fresh = rng.integers(len(data.test), size=2000)
    for kind in ("slda", "mean", "knn", "cosine+single"):
        for drift in (0.0, 1.0):
            away: dict[str, list[float]] = {"as calibrated": [], "living": []}
            head = ll.make_head(kind, in_features=64)
            head.observe(data.train.z[learned].double(), data.train.y[learned])
            head.calibrate(data.test.z[fresh].double(), data.test.y[fresh], living=True)
            limit = replace(head.calibration, living=None).limit(0.05)  # type: ignore[type-var]
            for batch in range(100):
                drawn = rng.integers(len(data.test), size=100)
                z = data.test.z[drawn].double() * (1 + drift * batch / 100)
                novelty = head.novelty(z)
                away["as calibrated"].append((novelty > limit).double().mean().item())
                away["living"].append((novelty > head.limit(0.05)).double().mean().item())
                head.observe(z, data.test.y[drawn])
            for how, shares in away.items():
                parts = [f"{100 * np.mean(part):.1f}" for part in np.array_split(shares, 5)]
                print(f"| {kind} | {1 + drift:g} | {how} | {100 * np.mean(shares):.2f} | "
                      f"{' | '.join(parts)} |", flush=True)  # fmt: skip


# How large, how fast.


def tell_size(rows: int) -> None:
    for name in CALIBRATION:
        rng = np.random.default_rng(6)
        watch, of = watch_of(name, rng)
        z, y = of.z.float(), torch.from_numpy(of.y)
        spent, marks = 0.0, []
        for batch in range(rows // 1000):
            drawn = torch.from_numpy(rng.integers(len(z), size=1000))
            some, own = z[drawn], y[drawn]
            begin = time.process_time()
            watch.see_rows(some, own)
            spent += time.process_time() - begin
            if batch in (0, 9, 999, rows // 1000 - 1):
                marks.append((batch + 1, _memory(watch)))
        says = "; ".join(f"after {n * 1000:,} rows {peak} MB, state {size:,} bytes"
                         for n, (peak, size) in marks)  # fmt: skip
        print(f"| {name} | {1e6 * spent / rows:.1f} µs a row | {says} |", flush=True)


def _memory(watch: Watch) -> tuple[int, int]:
    state = watch._state
    arrays = [getattr(q.wealth, f.name) for q in state.questions.values() for f in fields(q.wealth)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return peak, sum(a.nbytes for a in arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own = ("quiet", "between", "learning", "classes", "since", "living", "size")
    parser.add_argument("what", nargs="*", default=own, choices=(*own, "shifts", "risk"))
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of size")
    parser.add_argument("--images", type=Path, help="the folder with cifar-100-python")
    parser.add_argument("--weights", type=Path, help="the folder with cifar100_resnet20.pth")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    n, jobs = asked.streams, asked.jobs
    run: dict[str, Callable[[], None]] = {
        "quiet": lambda: tell_false_alarms(quiet_stream, "fixed head", n, jobs),
        "between": lambda: tell_between(n, jobs),
        "learning": lambda: tell_learning(n, jobs),
        "classes": lambda: tell_classes(n, jobs),
        "since": lambda: tell_since(n, jobs),
        "living": tell_living,
        "size": lambda: tell_size(asked.rows),
        "shifts": lambda: _rivals().tell_shifts(n, jobs, asked.images, asked.weights),
        "risk": lambda: _rivals().tell_risk(n, jobs),
    }
    for what in asked.what:
        print(f"\n{what}", flush=True)
        run[what]()


def _rivals() -> Any:
    from benchmarks import watch_rivals  # noqa: PLC0415  (needs river and MAPIE)

    return watch_rivals


if __name__ == "__main__":
    main()
