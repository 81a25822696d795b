"""How a head answers: it settles and refreshes what is out of date, then takes rows in pieces."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lastlayer.errors import NotLearnedError, UnsupportedError
from lastlayer.heads.graph import is_traced
from lastlayer.heads.undo import AllOrNothing, learning, settle

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

ON_GPU = 32  # times as large a piece: each costs a fixed time there


def make_ready(head: "Head") -> None:
    """Make sure that a head, whose lock is held, can answer."""
    if head._under_way is not None:
        settle(head)
    seen = head.seen
    # A head that is up to date has learned something: a GPU is not asked, which makes it wait.
    if not (seen.numpy().any() if seen.is_cpu else not head._stale or bool(seen.any())):
        raise NotLearnedError(
            f"this '{head.name}' head has learned nothing yet: call observe(z, y) first"
        )
    if head._stale:
        with AllOrNothing(head), learning(head):
            renew(head)


def renew(head: "Head") -> None:
    """Refresh what is out of date, as part of a change."""
    if head._stale:
        head._derived = {}
        head._refresh()
        head._stale = False


def ready(head: "Head", z: Tensor) -> Tensor:
    """Check queries (n, h), and make the head ready for them."""
    if is_traced():
        raise UnsupportedError(
            f"this '{head.name}' head cannot be traced or exported itself, since it inspects its "
            "inputs: use head.as_module() or head.export_onnx(path)"
        )
    z = head._check_features(z)
    make_ready(head)
    return z


def pieces(head: "Head", z: Tensor) -> Sequence[Tensor]:
    """Cut queries into pieces, so that intermediate results stay small."""
    most = head.piece if head.seen.is_cpu else head.piece * ON_GPU
    return z.split(max(most // max(head.n_classes, head.in_features), 1)) if len(z) else [z]


def by_pieces(head: "Head", z: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
    """Check queries (n, h), and answer them piece by piece."""
    with head.lock:
        z = ready(head, z)
        parts = [answer(part) for part in pieces(head, z)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).detach()


def can_win(head: "Head") -> Tensor:
    """Return which classes (n_classes,) may be answered: under "paper" also those never seen."""
    return head.seen if head.preset == "exact" else torch.ones_like(head.seen)


def scores(head: "Head", z: Tensor) -> Tensor:
    """Return the logits of some rows, of a head that is ready."""
    seen = head.seen
    logits = head._logits(z.to(seen.device, non_blocking=True))
    if head.preset == "exact" and not _all_seen(head):
        logits = logits.masked_fill(~seen, -torch.inf)
    return logits


def _all_seen(head: "Head") -> bool:
    """Return whether every class has been seen; a GPU is asked once after a change."""
    seen = head.seen
    if seen.is_cpu:
        return bool(seen.numpy().all())
    if "all seen" not in head._derived:
        head._derived["all seen"] = bool(seen.all())
    found: bool = head._derived["all seen"]
    return found


def judge(head: "Head", z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (n, n_classes) of some rows, and how strange they are (n,)."""
    logits = scores(head, z)
    novelty = head._novelty(z.to(head.seen.device), logits)
    return logits, novelty.double().nan_to_num(torch.finfo(torch.float64).max)


def classes(head: "Head", z: Tensor, unknown: float | None) -> Tensor:
    """Return the class (n,) of each row, −1 where it is stranger than a share of known ones."""
    if unknown is None:
        return by_pieces(head, z, lambda part: scores(head, part).argmax(dim=-1))
    with head.lock:
        limit = head.limit(unknown)

        def answer(part: Tensor) -> Tensor:
            logits, novelty = head._judge(part)
            return logits.argmax(dim=-1).masked_fill(novelty > limit, -1)

        return by_pieces(head, z, answer)


def logits(head: "Head", z: Tensor) -> Tensor:
    """Return the logits (n, n_classes) of each row."""
    return by_pieces(head, z, lambda part: scores(head, part))


def probabilities(head: "Head", z: Tensor) -> Tensor:
    """Return how probable each class of each row is (n, n_classes)."""
    with head.lock:
        return by_pieces(head, z, lambda part: head.probabilities_of(scores(head, part)))


def judged(head: "Head", z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (n, n_classes) of each row, and how strange it is (n,)."""
    with head.lock:
        both = [head._judge(part) for part in pieces(head, ready(head, z))]
    logits, novelty = zip(*both, strict=True)
    return torch.cat(logits).detach(), torch.cat(novelty).detach()
