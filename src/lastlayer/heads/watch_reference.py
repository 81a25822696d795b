"""What a watch compares a stream with: sums over the rows of a calibration, class by class.

No row is kept. A class has a limit of novelty of its own, and its features are seen along a few
directions, drawn once and for all: a shift as long as the deviation of all features together moves
each of them by one deviation on average, whatever its direction. Where a class lies along them is
taken from every fourth row, how far from there the others are on average from these others, so that
what is bounded does not depend on the rows that the bound comes from. How strange rows are, and how
far another class than the right one is ahead, is looked up among places that are chosen likewise.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.errors import FileFormatError

Array = NDArray[Any]

DIRECTIONS = 8
PASSING = 0.1  # of a class's rows pass its own limit of novelty
REACH = 2.0  # deviations from its place at which a projection is cut off
EVERY = 4  # one row in so many says where its class lies
AHEAD = (0.1, 0.03)  # of all rows pass a limit of how far another class is ahead
PLACES = 63  # among which the rank of a value is looked up


@dataclass(frozen=True, eq=False)
class Reference:
    """Rows of a calibration, summed up by class; a class without rows has zeros."""

    rows: NDArray[np.int64]  # (c,) how many there were of each class
    wrong: NDArray[np.int64]  # (c,) how many of them were answered wrongly
    passing: NDArray[np.int64]  # (c,) how many of them are beyond its limit, or at it
    limit: NDArray[np.float64]  # (c,) the class's own limit of novelty
    place: NDArray[np.float64]  # (c, DIRECTIONS) where it lies along the directions
    scale: NDArray[np.float64]  # (DIRECTIONS,) deviations within classes
    counted: NDArray[np.int64]  # (c,) rows in the two sums
    total: NDArray[np.float64]  # (c, DIRECTIONS) of ``along``
    squares: NDArray[np.float64]  # (c, DIRECTIONS) of their squares
    # Of ``ahead``, then of the novelty, whatever the class:
    places: NDArray[np.float64]  # (2, PLACES) with as many rows between any two
    ranked: NDArray[np.float64]  # (2, 3) other rows: how many, the sum of ``rank``, of its squares
    edge: NDArray[np.float64]  # (2,) limits of ``ahead``
    reaching: NDArray[np.int64]  # (2,) how many rows reach them

    @classmethod
    def of(
        cls, z: Tensor, y: Tensor, novelty: Tensor, wrong: Tensor, ahead: Array, n_classes: int
    ) -> Self:
        """Sum up rows (n, h) of a calibration; ``wrong`` (n,): they were answered wrongly.

        How far another class was ahead of each (n,) is told by the function of this name.
        """
        u, own, strange = projected(z), y.cpu().numpy(), novelty.cpu().numpy()
        order = np.lexsort((-strange, own))
        rows = np.bincount(own, minlength=n_classes)
        begin = rows.cumsum() - rows
        passing = np.minimum(np.maximum((PASSING * (rows + 1)).astype(np.int64), 1), rows)
        last = np.minimum(begin + np.maximum(passing, 1) - 1, len(own) - 1)
        limit = np.where(rows > 0, strange[order[last]], 0.0)
        nth = np.empty(len(own), dtype=np.int64)  # of its class, in the order of the rows
        nth[np.argsort(own, kind="stable")] = np.arange(len(own)) - np.repeat(begin, rows)
        first = nth % EVERY == 0
        place = _sums(u[first], own[first], n_classes)
        place /= np.maximum(np.bincount(own[first], minlength=n_classes), 1)[:, None]
        apart = u[first] - place[own[first]]
        scale = np.sqrt((apart**2).mean(axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        seen, rest = along(u[~first], place[own[~first]], scale), own[~first]
        some, parts = (np.arange(len(own)) % EVERY == 0), np.arange(1, PLACES + 1) / (PLACES + 1)
        places = np.stack([np.quantile(values[some], parts) for values in (ahead, strange)])
        ranks = np.stack([rank(ahead[~some], places[0]), rank(strange[~some], places[1])])
        ranked = np.stack([np.full(2, ranks.shape[1]), ranks.sum(1), (ranks**2).sum(1)], axis=1)
        reaching = (np.array(AHEAD) * (len(ahead) + 1)).astype(np.int64)
        edge = np.sort(ahead)[-np.maximum(reaching, 1)]
        return cls(
            rows, np.bincount(own[wrong.cpu().numpy()], minlength=n_classes),
            passing, limit, place, scale,
            np.bincount(rest, minlength=n_classes),
            _sums(seen, rest, n_classes), _sums(seen**2, rest, n_classes),
            places, ranked, edge, reaching,
        )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Return it as the file of a head keeps it."""
        return {field.name: packed(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what ``document`` returned; refuse what it cannot have returned."""
        try:
            found = cls(**{name: unpacked(text) for name, text in document.items()})
            c, many = len(found.rows), (len(found.rows), DIRECTIONS)
            shapes = ((c,), (c,), (c,), (c,), many, (DIRECTIONS,), (c,), many, many,
                      (2, PLACES), (2, 3), (len(AHEAD),), (len(AHEAD),))  # fmt: skip
            for field, shape in zip(fields(cls), shapes, strict=True):
                if getattr(found, field.name).shape != shape:
                    raise ValueError(f"{field.name} must be {shape}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"a calibration must fit what a watch needs: {error}") from error
        return found


def projected(z: Tensor) -> NDArray[np.float64]:
    """Return features (n, h) along the directions (n, DIRECTIONS)."""
    draws = np.random.RandomState(0).standard_normal((z.shape[1], DIRECTIONS))
    directions = torch.from_numpy(draws / np.sqrt((draws**2).sum(axis=0))).to(z.device)
    return (z.double() @ directions).cpu().numpy()


def along(
    u: NDArray[np.float64], place: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far along each direction rows are from a place, from 0 to 1; ½: just there."""
    seen: NDArray[np.float64] = np.clip(0.5 + (u - place) / (2 * REACH * scale), 0, 1)
    return seen


def ahead(logits: Tensor, y: Tensor) -> Array:
    """Return how far the best other class is ahead of the right one (n,): from −1 to 1.

    In parts of the way from the lowest logit of the row to the highest: a head that only becomes
    surer leaves it as it is. 0 where nothing can be told. Of the logits (n, n_classes) −∞ counts as
    the lowest finite one; the right classes y (n,) are all below n_classes.

    >>> ahead(torch.tensor([[4.0, 1.0, 0.0], [0.0, 1.0, 4.0]]), torch.tensor([0, 1])).tolist()
    [-0.75, 0.75]
    """
    says = logits.isfinite()
    low = logits.masked_fill(~says, torch.inf).amin(dim=1, keepdim=True)
    top = logits.masked_fill(~says, -torch.inf).amax(dim=1, keepdim=True)
    logits, y = torch.where(says, logits, low), y.to(logits.device)[:, None]
    other = logits.scatter(1, y, -torch.inf).amax(dim=1, keepdim=True)
    found = ((other - logits.gather(1, y)) / (top - low))[:, 0].double()
    return found.where(found.isfinite(), 0).cpu().numpy()


def rank(values: Array, places: Array) -> Array:
    """Return which part of some places is below each value, from 0 to 1; an equal one half.

    >>> rank(np.array([0.0, 2.0, 9.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    below, up_to = (np.searchsorted(places, values, side=side) for side in ("left", "right"))
    found: Array = (below + up_to) / (2 * len(places))
    return found


def _sums(values: NDArray[np.float64], own: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    found = np.zeros((n, values.shape[1]))
    np.add.at(found, own, values)
    return found


def packed(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as JSON that gives back the same bits.

    >>> unpacked(packed(np.array([[0.1, 2.0]])))
    array([[0.1, 2. ]])
    """
    kind = "<i8" if array.dtype.kind in "iub" else "<f8"
    data = base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode()
    return {"type": kind, "shape": list(array.shape), "data": data}


def unpacked(document: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array that ``packed`` has packed; ValueError where it cannot have."""
    if document["type"] not in ("<i8", "<f8"):
        raise ValueError(f"no array has the type {document['type']}")
    flat = np.frombuffer(base64.b64decode(document["data"], validate=True), document["type"])
    found = flat.reshape(document["shape"]).astype(document["type"][1:])
    if not np.isfinite(found).all():
        raise ValueError("numbers must be finite")
    return found
