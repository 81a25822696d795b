"""Which rows to label next: those that a head is unsure of, and that are not like one another."""

import os
from copy import deepcopy
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from lastlayer.core.checks import choice, whole
from lastlayer.core.progress import Tell
from lastlayer.data.rows import Source
from lastlayer.errors import DataError, OptionError
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head
from lastlayer.labels.pool import Kept, Piece, checked, pieces

Path_ = str | os.PathLike[str]
STRATEGIES = ("informative", "margin", "random", "coverage")
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


class _Asker:
    """Asks a classifier about rows of a pool."""

    def __init__(self, clf: HeadClassifier) -> None:
        self.clf, self.head = clf, _uncalibrated(clf.head_)
        self.scale = float(clf.feature_scale)
        self.labels = np.array(self.clf.labels_.names, dtype=object)

    def ask(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Return the class of each row, and by how much it is more probable than the next."""
        z = checked(piece, self.head.in_features)
        p = self.head.probabilities(z if self.scale == 1 else z.double() / self.scale)
        if p.shape[1] == 1:
            return torch.zeros(len(p), dtype=torch.int64), torch.ones(len(p), dtype=torch.float64)
        best = p.topk(2, dim=1)
        return best.indices[:, 0], best.values[:, 0] - best.values[:, 1]


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
