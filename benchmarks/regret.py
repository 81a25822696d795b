"""Regret: what the advised head loses on test rows to the best candidate in hindsight.

    python -m benchmarks.regret --sets DIR --jobs 4      # every stream, 5 splits
    python -m benchmarks.regret --streams digits --splits 2 --shares 1.0
    python -m benchmarks.regret --table                  # the table of what is there
    python -m benchmarks.regret --out DIR --before results/regret/splits.csv --table

DIR is what `python -m benchmarks.regret_sets` makes; without it the streams of the bundled features
and of scikit-learn's sets are taken. A split draws its share of the training rows, and for sets
without a test split of their own the test rows too; the head is advised on those rows alone, and
then every candidate learns all of them and is tested. One row is added to the file for each stream,
share and split; what is there already is not made again, so that --seconds may stop it anywhere.
intervals.csv says beside it what the advice expected of the head, and what the test rows say.
With --before, before.md compares these splits with the same ones of an earlier version.
"""

import argparse
import csv
import multiprocessing
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from benchmarks.regret_sets import read_set
from scipy import stats
from sklearn import datasets

import lastlayer as ll
from lastlayer.advice.choosing import Scores, choose
from lastlayer.advice.needs import Needs
from lastlayer.advice.stream_words import ALIKE, look_around
from lastlayer.core.names import look_up
from lastlayer.data.hold_out import hold_out
from lastlayer.evaluate.judge import judge
from lastlayer.evaluate.splits import Split
from lastlayer.evaluate.stream import Stream, lay_out

OUT = Path("results/regret")
SHARES = (1.0, 0.1, 0.01)
MANY = 1000  # rows from which on a mean of its own is told
LEAST = 3  # rows of a class on average; a smaller share of a set is left out
Draw = Callable[[int], ll.Features]
Job = tuple[str, float, int]  # stream, share, split
Rows = tuple[dict[str, Any], dict[str, float], dict[str, Any]]  # a split, candidates, an interval


def _bundled(name: str, seed: int) -> ll.Features:
    return ll.load_features(name)


def _toy(name: str, seed: int) -> ll.Features:
    """Draw a quarter of a set of scikit-learn's as test rows."""
    found = getattr(datasets, f"load_{name}")()
    z = torch.from_numpy(found.data).float()
    return ll.Features.from_arrays(z, found.target, test=0.25, seed=seed)


BUNDLED: dict[str, tuple[Draw, str]] = {
    **{
        name: (partial(_bundled, name.partition("_")[0]), name)
        for name in ("cifar10", "cifar100", "cifar100_lifelong", "cifar100_mix")
    },
    "cifar10_iid": (partial(_bundled, "cifar10"), "iid"),
    "digits": (partial(_toy, "digits"), "incremental:5"),
    "breast_cancer": (partial(_toy, "breast_cancer"), "incremental:2"),
    "wine": (partial(_toy, "wine"), "incremental:3"),
}
CARRIED = {  # stream → its set, and its scenario
    "cifar10-2": ("cifar10-2", "incremental:5"),
    "cifar100-2": ("cifar100-2", "incremental:10"),
    "cifar100_lifelong-2": ("cifar100-2", "nested:y/coarse"),
    "cifar100_mix-2": ("cifar100-2", "mixed:y/coarse"),
    "cub200": ("cub200-2", "incremental:10"),
    "snippets": ("snippets", "lifelong:source"),
    "mails": ("mails", "lifelong:lot"),
    "speeches": ("speeches", "incremental:8"),
    "speeches_party": ("speeches", "mixed:era/party"),
    "speeches_words": ("speeches_words", "incremental:8"),
    "letters": ("letterrecognition", "incremental:13"),
    "satellite": ("satellite", "incremental:3"),
    "dna": ("dna", "incremental:3"),
    "vowels": ("vowel", "incremental:5"),
    "vowels_by_speaker": ("vowel", "lifelong:speaker"),
    "mnist": ("mnist", "incremental:5"),
    "vehicle": ("vehicle", "incremental:2"),
    "shuttle": ("shuttle", "incremental:7"),
    "ionosphere": ("ionosphere", "incremental:2"),
    "sonar": ("sonar", "incremental:2"),
    "glass": ("glass", "incremental:3"),
    "docstrings": ("docstrings", "incremental:3"),
    "diabetes": ("pimaindiansdiabetes", "incremental:2"),
    "votes": ("housevotes84", "incremental:2"),
    "soybean": ("soybean", "incremental:3"),
    "zoo": ("zoo", "incremental:2"),
    "spam": ("spam", "incremental:2"),
    "musk": ("musk", "incremental:2"),
    "promoters": ("promotergene", "incremental:2"),
}


def streams(sets: Path | None) -> dict[str, tuple[Draw, str]]:
    """Return a function that draws the data of each available stream, and its scenario."""
    found = dict(BUNDLED)
    for name, (file, scenario) in CARRIED.items():
        if sets is not None and (path := sets / f"{file}.npz").exists():
            found[name] = (partial(read_set, path), scenario)
    return found


def regret(drawn: tuple[Draw, str], job: Job) -> Rows | None:
    """Advise on a share of the training rows, test all candidates, and compare.

    Returns the row of this split, each candidate's test accuracy, and what the advice expected of
    its head. None: the share leaves too few rows.
    """
    (draw, scenario), (name, share, split) = drawn, job
    data = draw(split)
    stream = _thinned(lay_out(data, scenario), share, split)
    if share < 1 and len(stream.rows) < LEAST * stream.n_classes:
        return None
    began = time.perf_counter()
    judgement = judge(stream, seed=split, curves=False)
    choice = choose(stream, judgement, Needs(), split)
    seconds = time.perf_counter() - began
    tested = _tested(stream, {name: v.lr for name, v in judgement.verdicts.items()})
    best = max(tested.names, key=tested.of)
    lost = tested.difference(best, choice.head)
    row = {
        "stream": name,
        "share": share,
        "split": split,
        "rows": len(stream.rows),
        "advised": choice.head,
        "accuracy": round(tested.of(choice.head), 6),
        "best": best,
        "best_accuracy": round(tested.of(best), 6),
        "regret": round(lost.value, 6),
        "low": round(lost.low, 6),
        "high": round(lost.high, 6),
        "within_noise": best == choice.head or best in choice.level or best in choice.twins,
        "own_test": torch.equal(draw(split + 1).test.z, data.test.z),
        "seconds": round(seconds, 1),
    }
    expected, found = (scores.accuracy(choice.head) for scores in (choice.scores, tested))
    interval = {
        "stream": job[0],
        "share": share,
        "split": split,
        "held": sum(map(len, judgement.held_y)),
        "tested": len(stream.test_y),
        "head": choice.head,
        "near": round(look_around(stream, split)[2], 4),
        **{f"expected_{k}": round(v, 6) for k, v in vars(expected).items()},
        **{f"found_{k}": round(v, 6) for k, v in vars(found).items()},
    }
    return row, {name: round(tested.of(name), 6) for name in tested.names}, interval


def _thinned(stream: Stream, share: float, seed: int) -> Stream:
    """Keep a share of each class, whichever task its rows belong to."""
    if share == 1:
        return stream
    rows = stream.rows
    y = stream.y[rows]
    kept = torch.zeros(len(stream.y), dtype=torch.bool)
    kept[rows[hold_out(y, torch.zeros_like(y), None, part=share, turn=0, seed=seed)]] = True
    return replace(
        stream, tasks=tuple(part[kept[part]] for part in stream.tasks if kept[part].any())
    )


def _tested(stream: Stream, rates: dict[str, float | None]) -> Scores:
    n, m = len(stream.y), len(stream.test_y)
    whole = replace(
        stream,
        z=torch.cat([stream.z, stream.test_z]),
        y=torch.cat([stream.y, stream.test_y]),
        group=None,
    )
    split = Split(stream.tasks, torch.arange(n, n + m))
    found = judge(whole, list(rates), splits=[split], rates=rates, curves=False)
    right = {
        name: (verdict.answers[0] == stream.test_y).numpy().astype(float)
        for name, verdict in found.verdicts.items()
    }
    return Scores(right, np.arange(m))


def table(splits: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Average over splits, in points, with the 95 % interval of the mean.

    The best in hindsight is the candidate with the highest test accuracy over all splits. Beside
    that stands the winner of each split, which is partly picked by the noise of its test rows; of
    splits without candidates only the winner is known.

    The interval is the wider of two: that of the mean over splits, and the paired bootstrap over
    test rows, whose width shrinks with more splits only where each draws test rows of its own.
    """
    stream = ["share", "stream"]
    means = candidates.group_by(*stream, "head", maintain_order=True).agg(
        pl.col("accuracy").mean().alias("mean")
    )
    best = means.sort("mean", descending=True, maintain_order=True).group_by(*stream).first()
    of_best = candidates.join(best.select(*stream, "head"), on=[*stream, "head"])
    joined = splits.join(
        of_best.select(*stream, "split", "head", pl.col("accuracy").alias("reached")),
        on=[*stream, "split"],
        how="left",
    ).with_columns(
        pl.col("head").fill_null(pl.col("best")),
        pl.col("reached").fill_null(pl.col("best_accuracy")),
    )
    lost = 100 * (pl.col("reached") - pl.col("accuracy"))
    mean = joined.group_by(*stream, maintain_order=True).agg(
        lost.mean().alias("regret"),
        lost.std().fill_null(0.0).alias("deviation"),
        (50 * (pl.col("high") - pl.col("low"))).mean().alias("by_rows"),
        (100 * pl.col("regret")).mean().alias("to_winners"),
        pl.col("own_test").first(),
        pl.len().alias("splits"),
        pl.col("rows").min(),
        (100 * pl.col("accuracy")).mean().alias("accuracy"),
        (100 * pl.col("reached")).mean().alias("best_accuracy"),
        pl.col("advised").mode().sort().first(),
        pl.col("head").mode().sort().first().alias("best"),
        pl.col("within_noise").mean(),
    )
    n = mean["splits"].to_numpy()
    by_splits = stats.t.ppf(0.975, np.maximum(n - 1, 1)) * mean["deviation"].to_numpy() / n**0.5
    by_rows = mean["by_rows"].to_numpy() / np.where(mean["own_test"].to_numpy(), 1, n**0.5)
    return (
        mean.with_columns(pl.Series("plus_minus", np.maximum(by_splits, by_rows)))
        .drop("deviation", "by_rows", "own_test")
        .sort("share", "stream", descending=[True, False])
    )


def in_words(found: pl.DataFrame) -> str:
    """Write the table as Markdown, the means of each share below it."""
    lines = [
        "| stream | share | rows | regret | to each split's winner | advised | best in hindsight "
        "| splits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found.iter_rows(named=True):
        lost = f"{row['regret']:.2f} ± {row['plus_minus']:.2f} | {row['to_winners']:.2f}"
        lines.append(
            f"| {row['stream']} | {row['share']:.0%} | {row['rows']} | {lost} "
            f"| {row['advised']} {row['accuracy']:.1f} | {row['best']} {row['best_accuracy']:.1f} "
            f"| {row['splits']} |".replace("%", " %")
        )
    for (share,), whole in found.group_by("share", maintain_order=True):
        for which, part in (("all", whole), (f"from {MANY} rows on", _many(whole))):
            if part.height:
                worst = part.filter(
                    (pl.col("regret") > 1) & (pl.col("regret") > pl.col("plus_minus"))
                )
                above = ", ".join(worst["stream"]) or "none"
                lines.append(
                    f"| **mean**, {which} | {share:.0%} | | **{part['regret'].mean():.2f}** "
                    f"| {part['to_winners'].mean():.2f} "
                    f"| above 1 and beyond its interval: {above} | | |".replace("%", " %", 1)
                )
    return "\n".join(lines)


def beside_before(before: pl.DataFrame, now: pl.DataFrame) -> str:
    """Write as Markdown what splits lose now and lost before, each to the winner of its time."""
    lines = [
        "| stream | share | splits | advised before | regret | advised now | regret |",
        "|---" * 7 + "|",
    ]
    keys = ["stream", "share", "split"]
    both = before.select(*keys, "advised", "accuracy", "regret").join(
        now.select(*keys, "advised", "accuracy", "regret"), on=keys, suffix="_now"
    )
    for (stream, share), part in both.group_by("stream", "share", maintain_order=True):
        cells = [str(stream), f"{share:.0%}".replace("%", " %"), str(part.height)]
        for end in ("", "_now"):
            head = part[f"advised{end}"].mode().sort()[0]
            accuracy, lost = (part[f"{k}{end}"].to_numpy().mean() for k in ("accuracy", "regret"))
            cells += [f"{head} {100 * accuracy:.1f}", f"{100 * lost:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    numbers = ["accuracy", "regret", "accuracy_now", "regret_now"]
    means = both.group_by("stream", "share").agg(pl.col(numbers).mean())
    found = {name: 100 * float(means[name].to_numpy().mean()) for name in numbers}
    return "\n".join(
        [
            *lines,
            f"| **mean** | | {both.height} | {found['accuracy']:.1f} | **{found['regret']:.2f}** "
            f"| {found['accuracy_now']:.1f} | **{found['regret_now']:.2f}** |",
        ]
    )


def intervals_in_words(found: pl.DataFrame) -> str:
    """Write what was expected, and found, as Markdown; below it how often the interval holds.

    Test rows are few, so that what they say has an interval too, Wilson's: the expected one is
    *contradicted* where the two differ by more than both, taken together, leave open. How many are
    to lie *inside* if all is as said follows from both widths.
    """
    lines = ["| stream | held-out rows | expected | test rows | found | |", "|---" * 6 + "|"]
    inside = contradicted = told = 0
    due, gap = 0.0, 0.0
    for row in found.sort("stream", "split").iter_rows(named=True):
        expected = [100 * row[f"expected_{k}"] for k in ("value", "low", "high")]
        n, share = row["tested"], row["found_value"]
        ends = stats.binomtest(round(share * n), n).proportion_ci(method="wilson")
        seen = [100 * share, 100 * ends.low, 100 * ends.high]
        within = expected[1] <= seen[0] <= expected[2]
        # The half of each interval that looks at the other.
        side = 1 if seen[0] < expected[0] else 2
        both = np.hypot(expected[side] - expected[0], seen[3 - side] - seen[0])
        off = abs(seen[0] - expected[0]) > both
        near = row["near"] >= ALIKE
        inside, contradicted = inside + within, contradicted + off
        told += off and near
        half = (expected[2] - expected[1]) / 2
        noise = 196 * np.sqrt(row["expected_value"] * (1 - row["expected_value"]) / n)
        due += 2 * float(stats.norm.cdf(1.96 * half / max(np.hypot(half, noise), 1e-9))) - 1
        gap += (seen[0] - expected[0]) / found.height
        texts = [f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in (expected, seen)]
        said = ", near-copies are pointed out" if near else ""
        lines.append(
            f"| {row['stream']} | {row['held']} | {row['head']} {texts[0]} | {row['tested']} "
            f"| {texts[1]} | {'contradicted' if off else 'inside' if within else 'holds'}{said} |"
        )
    n = found.height
    lines += [
        "",
        f"Of {n} intervals, {n - contradicted} are not contradicted by the test rows; of the "
        f"others, {told} came with a warning of near-copies. {inside} contain what the test rows "
        f"say: with so few of these, {due:.0f} would if every interval were exactly right. Test "
        f"rows are {abs(gap):.1f} points {'above' if gap > 0 else 'below'} what was expected on "
        "average.",
    ]
    return "\n".join(lines)


def _many(found: pl.DataFrame) -> pl.DataFrame:
    return found.filter(pl.col("rows") >= MANY)


def _alone(given: tuple[tuple[Draw, str], Job]) -> tuple[Job, Any]:
    torch.set_num_threads(1)
    return given[1], regret(*given)


def made(
    found: dict[str, tuple[Draw, str]], jobs: list[Job], workers: int, seconds: float
) -> Iterator[Rows]:
    """Yield the outcome of each job, run in processes of one core each, until time is up."""
    end = time.monotonic() + seconds
    # Processes that are new know nothing of threads that this one may have begun.
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        coming = pool.imap_unordered(_alone, [(found[job[0]], job) for job in jobs])
        for _ in jobs:
            try:
                job, outcome = coming.next(timeout=max(end - time.monotonic(), 0.01))
            except (queue.Empty, multiprocessing.TimeoutError):
                print("the time is over: what is not made yet can be made by the same command")
                return
            if outcome is None:
                print(f"{job[0]} at {job[1]:.0%}: too few rows for its classes", flush=True)
            else:
                yield outcome


def _append(file: Path, rows: list[dict[str, Any]]) -> None:
    new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Compute what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, help="folder that benchmarks.regret_sets has made")
    parser.add_argument("--streams", nargs="*")
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one core each")
    parser.add_argument("--seconds", type=float, default=float(10**6), help="stop after this time")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of splits.csv")
    parser.add_argument("--before", type=Path, help="splits.csv of an earlier version")
    parser.add_argument("--table", action="store_true", help="make nothing more")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file, tested, told = (
        asked.out / f"{name}.csv" for name in ("splits", "candidates", "intervals")
    )
    done = set(pl.read_csv(file).select("stream", "share", "split").rows()) if file.exists() else ()
    found = streams(asked.sets)
    wanted = asked.streams or list(found)
    for name in wanted:
        look_up(name, found, "stream")
    jobs = [
        (stream, share, split)
        for split in range(asked.splits)
        for share in asked.shares
        for stream in wanted
        if (stream, share, split) not in done
    ]
    if not asked.table:
        for row, accuracies, interval in made(found, jobs, asked.jobs, asked.seconds):
            job = {name: row[name] for name in ("stream", "share", "split")}
            _append(tested, [job | {"head": h, "accuracy": a} for h, a in accuracies.items()])
            _append(told, [interval])
            _append(file, [row])
            print(row, flush=True)
    result = table(pl.read_csv(file), pl.read_csv(tested))
    result.write_csv(asked.out / "regret.csv", float_precision=3)
    (asked.out / "table.md").write_text(in_words(result) + "\n", encoding="utf-8")
    print(in_words(result))
    if asked.before is not None:
        text = beside_before(pl.read_csv(asked.before), pl.read_csv(file))
        (asked.out / "before.md").write_text(text + "\n", encoding="utf-8")
        print(text)
    if told.exists():
        text = intervals_in_words(pl.read_csv(told))
        (asked.out / "intervals.md").write_text(text + "\n", encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
