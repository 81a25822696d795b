"""A snapshot: a head as it was through one change, which only answers and never changes again."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch

from lastlayer.estimator import HeadClassifier
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads import Head
from lastlayer.heads.answering import make_ready
from lastlayer.heads.shared_module import Resizable
from lastlayer.live.store.entry import Rows

BEST = 3  # labels that are named beside the answer


@dataclass(frozen=True)
class Answer:
    """What a live head says of some rows."""

    labels: list[Any]  # None where an input is too strange
    probabilities: list[float]  # of the most probable label of each
    best: list[list[tuple[Any, float]]]  # the three most probable labels of each
    novelty: list[float] | None  # how strange each is, where a share may be turned away
    through: int  # the change through which the head had learned


def frozen(clf: HeadClassifier) -> HeadClassifier:
    """Copy a classifier for a snapshot, cheaply; nothing that is done to one reaches the other.

    What is never overwritten is shared: a map once it is fixed, and the rows that a head keeps,
    since new ones come after those of the copy and dropped ones leave new memory behind.
    """
    memo: dict[int, Any] = {}
    for part in clf.head_.modules():
        if getattr(part, "copies_share", False):
            memo |= {id(tensor): tensor for tensor in part._buffers.values() if tensor is not None}
    made = HeadClassifier(**clf.get_params(deep=False))
    made.__dict__.update(clf.__dict__)
    made.__dict__["head_"] = deepcopy(clf.head_, memo)
    return made


class Snapshot:
    """Solved weights, and what else answers need, of a classifier that nobody else uses.

    It has learned through one change, and through the one ``calibrated`` when it was calibrated.
    The share ``unknown`` of known inputs may be turned away; a watch will ask it to judge rows.
    """

    def __init__(
        self,
        clf: HeadClassifier,
        through: int,
        unknown: float | None,
        calibrated: int | None,
        watched: bool = False,
    ) -> None:
        head = clf.head_
        self.has_changed = through > (calibrated or 0)  # since it was calibrated
        self.through, self.calibrated, self.head_name = through, calibrated, head.name
        self.in_features, self.n_classes = head.in_features, head.n_classes
        counts = head.class_counts
        self.rows = None if counts is None else int(counts.sum())
        self.labels = clf.labels_.by_class.tolist()
        self.seen = int(head.seen.sum())
        if head.calibration is not None:  # the last one there is, until another is made
            lives = head.calibration.living is not None
            self.calibrated = through if lives else calibrated
            head.calibration = replace(head.calibration, stale=False)
        calibrated_now = head.calibration is not None
        self.limit = head.limit(unknown) if unknown is not None and calibrated_now else None
        self._scale, self._head = float(clf.feature_scale), head
        with head.lock:
            make_ready(head)
        if self.limit is not None or watched:
            head.novelty(torch.zeros(1, head.in_features, dtype=torch.float64))
        drop_learning(head)

    def answer(self, z: Rows) -> Answer:
        """Answer rows (n, h)."""
        seen, head = self._seen(z), self._head
        novelty = None
        if self.limit is None:
            logits = head(seen)
        else:
            logits, strange = head.judge(seen)
            novelty = strange.tolist()
        return self._said(logits, novelty)

    def judge(self, z: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rows as the head sees them, their logits, and how strange they are."""
        seen = self._seen(z)
        return seen, *self._head.judge(seen)

    def classes_of(self, labels: Sequence[str]) -> torch.Tensor:
        """Return the class of each label (n,); of labels that are not known, the next one."""
        number = {str(label): c for c, label in enumerate(self.labels)}
        return torch.tensor([number.get(label, len(number)) for label in labels])

    def _seen(self, z: Rows) -> torch.Tensor:
        return Divided(z, self._scale)[:]

    def _said(self, logits: torch.Tensor, novelty: list[float] | None) -> Answer:
        names, winners = self.labels, logits.argmax(dim=1).tolist()
        share, place = self._head.probabilities_of(logits).topk(min(BEST, logits.shape[1]), dim=1)
        best = [
            [(names[c], p) for c, p in zip(own, ps, strict=True) if p > 0]
            for own, ps in zip(place.tolist(), share.tolist(), strict=True)
        ]
        labels: list[Any] = [names[c] for c in winners]
        if novelty is not None and self.limit is not None:
            far = self.limit
            labels = [None if n > far else label for n, label in zip(novelty, labels, strict=True)]
        return Answer(labels, share[:, 0].tolist(), best, novelty, self.through)


def drop_learning(head: Head) -> None:
    """Drop what only learning needs: it is most of the memory."""
    for part in head.modules():
        if isinstance(part, Resizable):
            part.drop_learning()
