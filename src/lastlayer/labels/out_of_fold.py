"""Every row answered by a head that learned all the others, a piece of them at a time."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lastlayer.core.checks import expect
from lastlayer.evaluate.pool import learn_rows
from lastlayer.heads import Head, make_head, options_of
from lastlayer.heads.changes import check_able
from lastlayer.labels.copies import Copies

PIECE = 1 << 21  # features, or logits, that are worked on at once
KEPT = 1 << 24  # logits that are kept rather than computed again


class OutOfFold:
    """A head that has learned all rows, asked about each as if it had not.

    The rows z (n, h), float16 or float32, may lie on disk; each of the classes 0…k − 1 has one. The
    seed is that of what is random in the head.
    """

    def __init__(self, name: str, z: Tensor, y: Tensor, seed: int, **options: Any) -> None:
        expect(name, str, "head", "the name of a head")
        self.z, self.y = z, y
        self.n_classes = int(y.max()) + 1
        self.copies = Copies(z, y)
        if "seed" in options_of(name):
            options = {"seed": seed, **options}
        self.head = _learn(make_head(name, z.shape[1], self.n_classes, **options), z, y, seed)
        self.times = self.copies.times
        # The only row of a class, and its copies: nothing else says what the class is.
        self.alone = y.bincount()[y] == self.times
        # Rows of as many copies together: what some heads make for these they make once.
        self._order = self.times.argsort(stable=True)
        self._kept: Tensor | None = None
        if len(y) * self.n_classes <= KEPT:
            kept = torch.empty(len(y), self.n_classes, dtype=torch.float64)
            for rows, logits in self.pieces():
                kept[rows] = logits
            self._kept = kept

    def of(self, rows: Tensor) -> Tensor:
        """Return the logits (m, k) of some rows."""
        if self._kept is not None:
            return self._kept[rows]
        return self.head.leave_one_out(self.z[rows], self.y[rows], self.times[rows])

    def pieces(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all rows, each once, some at a time: which, and their logits."""
        most = max(PIECE // max(self.n_classes, self.z.shape[1]), 1)
        for rows in self._order.split(most):
            yield rows, self.of(rows)


def _learn(head: Head, z: Tensor, y: Tensor, seed: int) -> Head:
    """Let a head learn rows that may lie on disk; one behind a map takes it from any rows."""
    check_able(head, "leaves_out", "leave rows out")
    if 0 < head.rows_to_begin <= len(z):
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
        head = head.fresh(head.n_classes, first=z[order[: head.rows_to_begin].sort().values])
    learn_rows(head, z, y, torch.arange(len(z)).split(max(PIECE // z.shape[1], 1)))
    return head
