"""Audit: which labels are wrong, and how many, by what all other rows say of each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from lastlayer.core.checks import choice, whole
from lastlayer.core.names import class_name
from lastlayer.core.progress import Tell
from lastlayer.data.rows import Rows, Source, read_rows
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.statistics.class_statistics import ClassStatistics
from lastlayer.labels import audit_words as words
from lastlayer.labels.copies import Pair, near_copies
from lastlayer.labels.out_of_fold import OutOfFold
from lastlayer.labels.second_opinion import Beside, fit

SCORES = ("noise", "confidence", "margin")
CANDIDATES = 1000  # of the worst rows, for which a near copy is looked for, and of few a twentieth
FEWEST = 10  # rows of a class before it is said to be the same as another
FAR_OUT = 3.0  # interquartile ranges above the upper quartile: so far is a row of no class


class Known(NamedTuple):
    """How often rows are right that were left out, and rows of another split."""

    left_out: float
    rows: int
    other: float | None = None  # None: there is no other split with labels
    split: str = ""
    others: int = 0


class ClassPair(NamedTuple):
    """Two classes, and the share of their rows that is nearer to its own than to the other."""

    one: int
    other: int
    told_apart: float  # the mean over both classes; one half: by chance


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found; ``print`` its ``sentences``, or write its ``page``. It changes nothing.

    Attributes:
        table: every row that can be judged, the most suspicious first: its place in the split from
            0, further columns asked for, label, suggestion, score, and how probable it is that the
            label is wrong.
        wrong: how many labels are wrong, as far as the noise model tells.
        interval: between which numbers that is, 95 times in 100, if the model holds.
        confusion: label, truth, and how many rows of that truth have that label, as expected.
        duplicates: rows that are alike and have different labels; ``distance`` 0: exact copies.
        strange: rows far from all classes, by how many interquartile ranges.
        same: classes that cannot be told apart.
        known: how often left-out rows are right, and rows of another split.
        beside: how many are wrong where the nearest neighbours of some rows have a say too.
        warnings: what limits all of this.
    """

    head: str
    label: str
    names: tuple[str, ...]
    table: pl.DataFrame
    wrong: float
    interval: tuple[float, float]
    confusion: pl.DataFrame
    duplicates: pl.DataFrame
    strange: pl.DataFrame
    same: pl.DataFrame
    known: Known
    beside: Beside
    noise: Mapping[str, float]
    warnings: tuple[str, ...]
    show: str | None = None

    @cached_property
    def suspects(self) -> pl.DataFrame:
        """The rows whose label is more probably wrong than right."""
        return self.table.filter(pl.col("wrong") > 0.5)

    def worst(self, count: int) -> pl.DataFrame:
        """Return that many rows, the most suspicious first."""
        return self.table.head(whole(count, "count", least=1))

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What was found, in sentences."""
        return words.sentences(self)

    def page(self, path: str | os.PathLike[str]) -> None:
        """Write what was found as one self-contained HTML page, with the worst rows."""
        # Charts are slow to import.
        from lastlayer.labels.audit_page import audit_page  # noqa: PLC0415
        from lastlayer.report.page import write_page  # noqa: PLC0415

        write_page(audit_page(self), Path(path))


def audit(
    data: Source,
    head: str = "slda",
    *,
    rows: str = "train",
    embedding: str | None = None,
    label: str | None = None,
    id: str | None = None,
    show: str | None = None,
    score: str = "noise",
    seed: int = 0,
    progress: Tell | None = None,
    **options: Any,
) -> Audit:
    """Find the labels that all other rows contradict, and say how many are wrong.

    Args:
        data: What ``fit`` takes, but for shards: ``Features``, a name, a file, a table.
        head: The name of one that leaves rows out: slda is the fastest; random_slda and qda find
            more where classes are of odd shapes.
        rows: The split to look at: ``train``, ``validation`` or ``test``.
        embedding: As ``fit`` takes it.
        label: As ``fit`` takes it.
        id: A column that names the rows, to be in the tables.
        show: A column of paths of pictures, addresses or texts, to be on the page.
        score: Rows are ranked by how probable it is that their label is wrong under the noise model
            ("noise"), by how improbable the label is ("confidence"), or by how much more probable
            another one is ("margin").
        seed: Decides what is random in a head.
        progress: Is told how many rows are answered, and how many there are.
        **options: Of the head.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> y = data.train.y[:2000].clone()
    >>> y[:60] = (y[:60] + 1) % 10
    >>> found = audit(ll.Features.from_arrays(data.train.z[:2000], y, test=0.1))
    >>> found.interval[0] < 60 < found.interval[1]
    True
    """
    choice(score, SCORES, "score")
    whole(seed, "seed", least=0, most=2**32 - 1)
    also = tuple(dict.fromkeys(name for name in (id, show) if name is not None))
    splits = read_rows(data, "all", embedding=embedding, label=label, also=also)
    part = _chosen(splits, rows)
    present, y = part.labelled.unique(return_inverse=True)
    if len(present) < 2:
        raise DataError(f"an audit needs at least 2 classes, got {len(present)}")
    found = OutOfFold(head, part.z, y, seed, **options)
    names = tuple(class_name(part.names[c]) for c in present.tolist())
    return _Findings(found, names).audit(part, splits, present, score, progress, show)


def _chosen(splits: list[Rows], rows: str) -> Rows:
    chosen = [part for part in splits if part.split in ("", rows)]
    if len(chosen) != 1:
        there = ", ".join(part.split for part in splits)
        raise OptionError(f"rows must be one split, {there}, got '{rows}'")
    return chosen[0]


class _Findings:
    """What is added up while rows are answered, a piece at a time."""

    def __init__(self, found: OutOfFold, names: tuple[str, ...]) -> None:
        k, n = found.n_classes, len(found.y)
        self.found, self.names = found, names
        self.noise, self.beside = fit(found)
        self.own, self.best, self.wrong, self.strange = (
            torch.empty(n, dtype=torch.float64) for _ in range(4)
        )
        self.suggestion = torch.empty(n, dtype=torch.int64)
        self.confusion, self.beaten = (torch.zeros(k, k, dtype=torch.float64) for _ in range(2))
        self.right = 0

    def look(self, rows: Tensor, logits: Tensor) -> None:
        """Take in the logits (m, k) of some rows."""
        found = self.found
        y, judged = found.y[rows], ~found.alone[rows]
        p = self.noise.probabilities(logits)
        wrong = self.noise.wrong(p, y)
        self.own[rows] = p.gather(1, y[:, None])[:, 0]
        self.best[rows] = p.scatter(1, y[:, None], -1.0).amax(dim=1)
        self.wrong[rows], self.suggestion[rows] = wrong.sum(dim=1), wrong.argmax(dim=1)
        self.confusion.index_add_(0, y[judged], wrong[judged])
        count_beaten(self.beaten, logits[judged], y[judged])
        self.right += int((logits.argmax(dim=1) == y)[judged].sum())
        self.strange[rows] = found.head.novelty(found.z[rows])

    def audit(
        self, part: Rows, splits: list[Rows], present: Tensor, score: str, progress: Tell | None,
        show: str | None,
    ) -> Audit:  # fmt: skip
        """Look at all rows, and put together what was found."""
        found, judged = self.found, (~self.found.alone).nonzero().flatten()
        looked = 0
        for rows, logits in found.pieces():
            self.look(rows, logits)
            looked += len(rows)
            if progress is not None:
                progress(looked, len(found.y))
        ranked = {"confidence": 1 - self.own, "margin": self.best - self.own}
        scores = ranked.get(score, self.wrong)
        order = judged[scores[judged].argsort(descending=True, stable=True)]
        pairs = found.copies.contradicting() + self._near(
            order[: min(CANDIDATES, max(len(order) // 20, 50))]
        )
        known = _known(self.right / len(judged), len(judged), found, part, splits, present)
        same = classes_that_are_one(self.beaten, found.y.bincount())
        wrong = self.wrong[judged]
        return Audit(
            found.head.name,
            part.label,
            self.names,
            self._table(order, scores, part),
            *self._count(wrong),
            self._confusion(),
            self._pairs(pairs),
            self._strange(),
            self._same(same),
            known,
            self.beside,
            self.noise.document(),
            words.warnings(
                found.head.name,
                known,
                self.beside,
                float(wrong.sum()),
                found.y.bincount(),
                int(found.alone.sum()),
            ),
            show,
        )

    def _near(self, candidates: Tensor) -> list[Pair]:
        z, y = self.found.z, self.found.y
        known = ClassStatistics(z.shape[1], self.found.n_classes, "none")
        for rows in torch.arange(len(y)).split(1 << 14):
            known.add(z[rows], y[rows])
        known.fold()
        spread = float(known.spread.sum()) / len(y)
        return near_copies(z, y, candidates, (2 * spread) ** 0.5)

    def _count(self, wrong: Tensor) -> tuple[float, tuple[float, float]]:
        """Return how many labels are wrong, and between which numbers that is."""
        if self.beside.confirms:
            return float(wrong.sum()), self.noise.interval(wrong)
        return self.beside.by_both(len(wrong))

    def _named(self, classes: Tensor) -> pl.Series:
        return pl.Series(
            np.array(self.names, dtype=object)[classes.numpy()].tolist(), dtype=pl.String
        )

    def _table(self, order: Tensor, scores: Tensor, part: Rows) -> pl.DataFrame:
        also = {
            name: pl.Series(values)[pl.Series(order.numpy())] for name, values in part.also.items()
        }
        return pl.DataFrame(
            {
                "row": order.numpy(),
                **also,
                "label": self._named(self.found.y[order]),
                "suggestion": self._named(self.suggestion[order]),
                "score": scores[order].numpy(),
                "wrong": self.wrong[order].numpy(),
            }
        )

    def _confusion(self) -> pl.DataFrame:
        label, truth = (self.confusion > 0).nonzero(as_tuple=True)
        columns = {
            "label": self._named(label),
            "truth": self._named(truth),
            "rows": self.confusion[label, truth].numpy(),
        }
        return pl.DataFrame(columns).sort("rows", descending=True, maintain_order=True)

    def _pairs(self, pairs: list[Pair]) -> pl.DataFrame:
        row, other = (torch.tensor([pair[i] for pair in pairs]).long() for i in (0, 1))
        columns = {
            "row": row.numpy(),
            "other": other.numpy(),
            "label": self._named(self.found.y[row]),
            "other_label": self._named(self.found.y[other]),
            "distance": [pair.distance for pair in pairs],
        }
        return pl.DataFrame(columns, schema_overrides={"distance": pl.Float64}).sort(
            "distance", maintain_order=True
        )

    def _strange(self) -> pl.DataFrame:
        """Return rows beyond Tukey's outer fence of novelty."""
        low, high = (self.strange.quantile(share) if len(self.strange) < 1 << 24 else
                     self.strange.kthvalue(int(share * len(self.strange)) + 1).values
                     for share in (0.25, 0.75))  # fmt: skip
        width = float(high - low)
        ranges = (self.strange - high) / width if width > 0 else torch.zeros_like(self.strange)
        rows = (ranges > FAR_OUT).nonzero().flatten()
        rows = rows[ranges[rows].argsort(descending=True, stable=True)]
        columns = {
            "row": rows.numpy(),
            "label": self._named(self.found.y[rows]),
            "ranges": ranges[rows].numpy(),
        }
        return pl.DataFrame(columns)

    def _same(self, pairs: list[ClassPair]) -> pl.DataFrame:
        one, other = (torch.tensor([pair[i] for pair in pairs]).long() for i in (0, 1))
        columns = {
            "class": self._named(one),
            "other": self._named(other),
            "told_apart": [pair.told_apart for pair in pairs],
        }
        return pl.DataFrame(columns, schema_overrides={"told_apart": pl.Float64})


def _known(
    right: float, n: int, found: OutOfFold, part: Rows, splits: list[Rows], present: Tensor
) -> Known:
    """Answer the rows of another split too, where there is one with labels."""
    for other in splits:
        if other.split == part.split or other.y is None or not len(other.y):
            continue
        place = torch.searchsorted(present, other.y).clamp(max=len(present) - 1)
        hits = found.head.predict(other.z) == torch.where(present[place] == other.y, place, -1)
        return Known(right, n, float(hits.double().mean()), other.split, len(hits))
    return Known(right, n)


def count_beaten(beaten: Tensor, logits: Tensor, y: Tensor) -> None:
    """Add, in place, how often rows of a class have a larger logit for another (k, k)."""
    own = logits.gather(1, y[:, None])
    beaten.index_add_(0, y, (logits > own).double() + 0.5 * (logits == own).double())


def classes_that_are_one(beaten: Tensor, counts: Tensor) -> list[ClassPair]:
    """Return pairs of classes that are told apart no better than by chance.

    A pair is one unless more rows are right than 19 in 20 times, were each decided by a coin.

    >>> beaten = torch.tensor([[0.0, 48.0, 1.0], [52.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    >>> [(pair.one, pair.other) for pair in classes_that_are_one(beaten, torch.tensor([100] * 3))]
    [(0, 1)]
    """
    share = beaten / counts[:, None].double().clamp(min=1)
    right = 1 - (share + share.mT) / 2
    rows = 1 / counts.double().clamp(min=1)
    chance = 0.5 + 1.645 * ((rows[:, None] + rows) / 16).sqrt()
    enough = counts >= FEWEST
    one = (right < chance) & enough[:, None] & enough
    found = [
        ClassPair(i, j, float(right[i, j])) for i, j in one.triu(diagonal=1).nonzero().tolist()
    ]
    return sorted(found, key=lambda pair: (pair.told_apart, pair.one, pair.other))
