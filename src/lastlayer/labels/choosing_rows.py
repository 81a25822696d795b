"""Which rows to label next: those that a head is unsure of, and that are not like one another."""

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from lastlayer.core.checks import choice, whole
from lastlayer.core.progress import Tell
from lastlayer.data.feature_columns import check_width, columns_in_order
from lastlayer.data.from_arrays import as_features
from lastlayer.data.made_by import Maker, refuse_others
from lastlayer.data.rows import CHOICES, Source, is_table, read_rows
from lastlayer.data.table_rows import TableRows
from lastlayer.data.tables.open_table import open_table
from lastlayer.data.tables.table import Array
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, OptionError
from lastlayer.estimator import HeadClassifier
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads import Head

Path_ = str | os.PathLike[str]
STRATEGIES = ("informative", "margin", "random", "coverage")
AT_ONCE = 1 << 21  # features of a piece of the pool, which may be larger than the memory
MOST_ROWS = 1 << 14  # and rows, where their number is not known
ROOM = 1 << 24  # features of the rows among which is chosen
TIMES = 20  # at least as many rows for each that is asked for
WIDTH = 0.25  # of the kernel, in mean squared distances of two rows
NOISE = 0.05  # of a label, beside the variance 1 of what it tells


def next_rows(
    head: Path_ | HeadClassifier | None,
    pool: Source | Tensor,
    count: int,
    *,
    strategy: str | None = None,
    rows: str = "all",
    embedding: str | None = None,
    id: str | None = None,
    seed: int = 0,
    accept_features: bool = False,
    progress: Tell | None = None,
) -> pl.DataFrame:
    """Choose the rows of a pool that teach a head most.

    Args:
        head: A classifier, or its file; None: there is none yet.
        pool: Features without labels, as a tensor (n, h), or in any form that ``predict`` takes. A
            table or a features file may be larger than the memory.
        count: How many rows to choose.
        strategy: ``informative``: unsure and not alike, each pick updating what the others would
            still tell; ``margin``: the least sure; ``random``; ``coverage``: the middles of as many
            clusters. None: informative, and coverage where there is no head.
        rows: The split, if the pool has several.
        embedding: As ``predict`` takes it.
        id: A column that names the rows, to be in the table.
        seed: Decides what is random.
        accept_features: Whether to take features that another model made than those that the head
            has learned, or that seem to be of another.
        progress: Is told how many rows were looked at.

    Returns:
        A table of the rows, the most useful first: place in the pool from 0, the label that the
        head would give, and by how much that is more probable than the next.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> clf = ll.HeadClassifier("slda").fit(data.train.z[:100].numpy(), data.train.y[:100].numpy())
    >>> next_rows(clf, data.train.z[100:1000], 3).columns
    ['row', 'label', 'margin']
    """
    count = whole(count, "count", least=1)
    seed = whole(seed, "seed", least=0, most=2**32 - 1)
    asked = ("coverage" if head is None else "informative") if strategy is None else strategy
    choice(asked, STRATEGIES, "strategy")
    clf = head if head is None or isinstance(head, HeadClassifier) else HeadClassifier.load(head)
    if clf is None and asked in ("informative", "margin"):
        raise OptionError(f"strategy '{asked}' needs a head: without one, coverage is a good start")
    also = () if id is None else (id,)
    columns = () if clf is None else clf.column_names
    kept = None
    generator = torch.Generator().manual_seed(seed)
    looked = 0
    asker = None if clf is None else _Asker(clf)
    for piece in pieces(pool, rows, embedding, also, columns):
        if asker is not None and not accept_features:
            asker.check(piece)
        if kept is None:
            kept = Kept(max(TIMES * count, ROOM // piece.z.shape[1]))
        if asker is not None and asked in ("informative", "margin"):
            score = 1 - asker.ask(piece)[1]
        else:  # any rows, to choose from at random or to cover
            score = torch.rand(len(piece.z), generator=generator)
        kept.add(piece, score)
        looked += len(piece.z)
        if progress is not None:
            progress(looked, looked)
    if kept is None or len(kept) < count:
        raise DataError(f"the pool must have at least {count} rows, got {looked}")
    chosen = _chosen(asked, kept, count, seed)
    return _table(kept, chosen, asker)


class Piece(NamedTuple):
    """Some rows of a pool."""

    split: str
    first: int  # the place of the first one in its split
    z: Tensor  # (n, h)
    also: dict[str, Array]
    made_by: Maker = MappingProxyType({})  # what made them, as far as it is known


def pieces(
    pool: Source | Tensor, rows: str, embedding: str | None, also: Sequence[str],
    columns: Sequence[str] = (),
) -> Iterator[Piece]:  # fmt: skip
    """Yield the rows of a pool in their order: a table piece by piece, and all of its splits.

    ``also`` are further columns to yield, ``columns`` those that a head has learned, in order.
    """
    choice(rows, CHOICES, "rows")
    if isinstance(pool, Tensor):
        if also:
            raise OptionError("id and show name columns, and a tensor has none")
        yield from _cut("", as_features(pool), {})
    elif isinstance(pool, str | os.PathLike) and is_table(pool):
        yield from _of_table(pool, embedding, also, columns)
    else:
        for part in read_rows(pool, rows, embedding=embedding, labelled=False, also=also):
            z = columns_in_order(part.z, part.columns, columns) if columns else part.z
            for piece in _cut(part.split, z, dict(part.also)):
                yield piece._replace(made_by=part.made_by)


def _of_table(
    path: str | os.PathLike[str], embedding: str | None, also: Sequence[str], columns: Sequence[str]
) -> Iterator[Piece]:
    selection = Selection("all", embedding, split="", labelled=False, domains=also, columns=columns)
    for split, table in open_table(path).items():
        first = 0
        for piece in TableRows(table, selection).pieces(MOST_ROWS):
            z = as_features(piece.z)
            z = columns_in_order(z, piece.embedding, columns) if columns else z
            named = {name: piece.columns[name] for name in also}
            for part in _cut(piece.split or split, z, named):
                yield part._replace(first=first + part.first)
            first += len(z)


def _cut(split: str, z: Tensor, also: dict[str, Array]) -> Iterator[Piece]:
    size = max(AT_ONCE // z.shape[1], 1)
    for first in range(0, len(z), size):
        named = {name: values[first : first + size] for name, values in also.items()}
        yield Piece(split, first, z[first : first + size], named)


class Kept:
    """The rows of a pool with the largest scores, at most so many, whatever the pool's size.

    >>> kept = Kept(2)
    >>> piece = Piece("", 0, torch.tensor([[5.0], [6.0], [7.0]]), {})
    >>> kept.add(piece, torch.tensor([1.0, 3.0, 2.0]))
    >>> kept.z.flatten().tolist(), kept.row.tolist()
    ([6.0, 7.0], [1, 2])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.z, self.score = torch.empty(0, 0), torch.empty(0, dtype=torch.float64)
        self.row = torch.empty(0, dtype=torch.int64)
        self.split: Array = np.empty(0, dtype=object)
        self.also: dict[str, Array] = {}

    def add(self, piece: Piece, score: Tensor) -> None:
        """Take in rows with their scores (n,)."""
        first = not len(self.score)
        row = torch.arange(piece.first, piece.first + len(score))
        split: Array = np.full(len(score), piece.split, dtype=object)
        score, z = torch.cat([self.score, score.double()]), piece.z.float()
        # A stable sort: of equal scores the earlier rows stay.
        best = score.argsort(descending=True, stable=True)[: self.most]
        self.z = (z if first else torch.cat([self.z, z]))[best]
        self.score, self.row = score[best], torch.cat([self.row, row])[best]
        place = best.numpy()
        self.split = np.concatenate([self.split, split])[place]
        for name, values in piece.also.items():
            joint = values if first else np.concatenate([self.also[name], values])
            self.also[name] = joint[place]

    def __len__(self) -> int:
        return len(self.score)


class _Asker:
    """Asks a classifier about rows of a pool."""

    def __init__(self, clf: HeadClassifier) -> None:
        self.clf, self.head = clf, _uncalibrated(clf.head_)
        self.labels = np.array(self.clf.labels_.names, dtype=object)

    def check(self, piece: Piece) -> None:
        """Refuse features of another maker; warn, once, of rows that seem to be of another."""
        refuse_others(piece.made_by, self.clf.maker)
        self.clf.look_at(self._divided(piece), "asked")

    def ask(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Return the class of each row, and by how much it is more probable than the next."""
        p = self.head.probabilities(self._divided(piece)[:])
        if p.shape[1] == 1:
            return torch.zeros(len(p), dtype=torch.int64), torch.ones(len(p), dtype=torch.float64)
        best = p.topk(2, dim=1)
        return best.indices[:, 0], best.values[:, 0] - best.values[:, 1]

    def _divided(self, piece: Piece) -> Divided:
        check_width(piece.z.shape[1], self.head.in_features)
        return Divided(piece.z, float(self.clf.feature_scale))


def _uncalibrated(head: Head) -> Head:
    """Return a head that answers with probabilities though its calibration is out of date."""
    if head.calibration is None or not head.calibration.stale:
        return head
    head = deepcopy(head)
    head.calibration = None
    return head


def _chosen(strategy: str, kept: Kept, count: int, seed: int) -> Tensor:
    """Return which of the kept rows are chosen, in the order of their use."""
    if strategy == "informative":
        return informative(kept.z, kept.score, count)
    if strategy == "coverage":
        return middles(kept.z, count, seed)
    return torch.arange(count)  # they are in the order of their scores


def informative(z: Tensor, unsure: Tensor, count: int) -> Tensor:
    """Choose rows that are unsure and not alike, one after the other (count,).

    What a row would still tell is its uncertainty times its leverage: what the rows chosen so far
    leave unexplained of it, as a Gaussian process of the same rows would have it, its kernel as
    wide as rows are apart. Each pick adds a column to the Cholesky factor of their kernel, a change
    of rank one, so that copies of it, exact or near, tell nearly nothing any more. ``unsure`` (n,)
    is from 0, sure, to 1.

    >>> z = torch.tensor([[3.0, 0.0], [3.0, 0.1], [0.0, 2.0], [-3.0, 0.0], [0.0, -9.0]])
    >>> informative(z, torch.tensor([1.0, 0.9, 0.8, 0.1, 0.1]), 2).tolist()
    [0, 2]
    """
    z = (z - z.mean(dim=0)).float()
    lengths = z.square().sum(dim=1)
    wide = WIDTH * 2 * float(lengths.mean()) or 1.0  # the mean squared distance of two rows
    factor = torch.zeros(len(z), count)
    leverage, unsure = torch.ones(len(z)), unsure.float().clamp(min=0)
    free = torch.ones(len(z), dtype=torch.bool)
    chosen = []
    for j in range(count):
        i = int(torch.where(free, unsure * leverage.clamp(min=0), -1.0).argmax())
        free[i] = False
        chosen.append(i)
        apart = (lengths + lengths[i] - 2 * z @ z[i]).clamp(min=0)
        column = torch.exp(-apart / wide) - factor[:, :j] @ factor[i, :j]
        factor[:, j] = column / float(leverage[i].clamp(min=0) + NOISE) ** 0.5
        leverage = leverage - factor[:, j].square()
    return torch.tensor(chosen)


def middles(z: Tensor, count: int, seed: int) -> Tensor:
    """Choose the rows nearest to the middles of as many clusters (count,), of large ones first."""
    from sklearn.cluster import MiniBatchKMeans  # noqa: PLC0415  (a second to import)

    z = (z - z.mean(dim=0)).float()
    size = max(1024, 4 * count)
    clusters = MiniBatchKMeans(count, batch_size=size, n_init=1, random_state=seed).fit(z.numpy())
    centre = torch.from_numpy(clusters.cluster_centers_).float()
    order = np.argsort(-np.bincount(clusters.labels_, minlength=count), kind="stable")
    free, chosen = torch.ones(len(z), dtype=torch.bool), []
    for c in order.tolist():
        apart = (z - centre[c]).square().sum(dim=1).masked_fill(~free, torch.inf)
        i = int(apart.argmin())
        free[i] = False
        chosen.append(i)
    return torch.tensor(chosen)


def _table(kept: Kept, chosen: Tensor, asker: _Asker | None) -> pl.DataFrame:
    place = chosen.numpy()
    columns: dict[str, Any] = {"row": kept.row[chosen].numpy()}
    if len(set(kept.split)) > 1:
        columns = {"split": kept.split[place].tolist(), **columns}
    columns |= {name: pl.Series(values[place]) for name, values in kept.also.items()}
    if asker is not None:
        label, margin = asker.ask(Piece("", 0, kept.z[chosen], {}))
        columns |= {"label": asker.labels[label.numpy()].tolist(), "margin": margin.numpy()}
    return pl.DataFrame(columns)
