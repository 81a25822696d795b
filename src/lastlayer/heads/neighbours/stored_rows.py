"""Stored features: rows with their labels in a buffer that doubles, and heads that keep them."""

import math
from collections import Counter
from typing import Any, Self

import torch
from torch import Tensor, nn

from lastlayer.core.tensors import are_whole, row_hashes
from lastlayer.errors import ImpossibleError, UnsupportedError
from lastlayer.heads.first_rows import Moments
from lastlayer.heads.head import Head, Preset

MOST_ROWS = 10_000  # that are looked at to say how the rows lie


class Memory(nn.Module):
    """Features and labels in the order they came.

    Rows are kept as they arrive, float16 ones in float16; rows of another type widen the memory.
    ``state_dict`` holds the filled part only, and loads into a memory of any size.

    >>> memory = Memory(2)
    >>> memory.append(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([7, 8]))
    >>> memory.keep(torch.tensor([1]))
    >>> memory.z, memory.y
    (tensor([[2., 3.]]), tensor([8]))
    """

    copies_share = True  # rows are added behind those of a copy; dropping some makes new memory
    _z: Tensor  # (capacity, h)
    _y: Tensor  # (capacity,) int64
    _number: Tensor  # (capacity,) int64

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.register_buffer("_z", torch.empty(0, in_features), persistent=False)
        for name in ("_y", "_number"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64), persistent=False)
        self._count = self._arrived = self._rewrites = 0

    def __len__(self) -> int:
        return self._count

    @property
    def z(self) -> Tensor:
        """The stored features (n, h): a view, not a copy."""
        return self._z[: self._count]

    @property
    def y(self) -> Tensor:
        """Their labels (n,): a view, not a copy."""
        return self._y[: self._count]

    @property
    def number(self) -> Tensor:
        """A number (n,) for each row, ascending and never given again: what is left is known by it.

        Like a view of the features, it stays as it was when rows are dropped.
        """
        return self._number[: self._count]

    @property
    def rewrites(self) -> int:
        """How often rows were dropped or replaced; between two of these, rows are only added."""
        return self._rewrites

    def append(self, z: Tensor, y: Tensor) -> None:
        """Store copies of features ``z`` (n, h) with labels ``y`` (n,)."""
        count = self._count + z.shape[0]
        dtype = torch.promote_types(self._z.dtype, z.dtype) if self._count else z.dtype
        if count > self._z.shape[0] or dtype != self._z.dtype:
            capacity = max(count, 2 * self._z.shape[0])
            self._replace(self.z, self.y, self.number, capacity, dtype)
        self._z[self._count : count] = z
        self._y[self._count : count] = y
        self._number[self._count : count] = self._new_numbers(z.shape[0])
        self._count = count

    def keep(self, indices: Tensor) -> None:
        """Keep the rows ``indices``, in ascending order, and drop the others."""
        rows = self.z[indices], self.y[indices], self.number[indices]
        self._replace(*rows, indices.numel(), self._z.dtype)
        self._rewrites += 1

    def rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        """Number classes and columns anew; see ``Head._rearrange``."""
        number = torch.zeros(int(classes.max()) + 1 if len(classes) else 0).to(classes)
        number[classes] = torch.arange(len(classes), device=classes.device)
        z = self.z if columns is None else self.z[:, columns]
        self._replace(z, number[self.y], self.number, len(z), self._z.dtype)
        self._rewrites += 1

    def drop(self, z: Tensor, y: Tensor) -> None:
        """Drop one stored row for each of the rows ``z`` (n, h) with labels ``y`` (n,).

        Of equal rows the latest go. If one of the rows is not stored, all stay.
        """
        dtype = torch.promote_types(self._z.dtype, z.dtype)
        near = torch.isin(self.y, y).nonzero().flatten()  # no other rows can be meant
        rows = torch.cat([self.z[near].to(dtype), z.to(dtype)])
        labels = torch.cat([self.y[near], y])
        _, alike = torch.unique(rows, dim=0, return_inverse=True)
        _, alike = torch.unique(torch.stack([alike, labels], dim=1), dim=0, return_inverse=True)
        stored, wanted = alike[: len(near)], alike[len(near) :]
        times = wanted.bincount(minlength=len(rows))
        lacking = times - stored.bincount(minlength=len(rows))
        if bool((lacking > 0).any()):
            row = int((lacking[wanted] > 0).nonzero()[0])
            there = int(times[wanted[row]]) - int(lacking[wanted[row]])
            raise ImpossibleError(
                f"row {row} is to be forgotten {int(times[wanted[row]])} × with its label, and was "
                f"learned {there} ×",
                int(y[row]),
            )
        last_first = stored.flip(0).argsort(stable=True)
        group = stored.flip(0)[last_first]
        start = torch.searchsorted(group, group)
        rank = torch.arange(len(group), device=group.device) - start
        gone = near.flip(0)[last_first[rank < times[group]]]
        stays = torch.ones_like(self.y, dtype=torch.bool)
        stays[gone] = False
        self.keep(stays.nonzero().flatten())

    def known_too_often(self, z: Tensor) -> Tensor:
        """Tell which rows of ``z`` (n, h) are stored; none where chance may have made them equal.

        Data with equal rows in them have some among new rows too: about as many, of n, as stored
        rows that have a twin; three deviations more are allowed.
        """
        stored = Counter(row_hashes(self.z).tolist())
        found = torch.tensor([row in stored for row in row_hashes(z).tolist()], dtype=torch.bool)
        found = found.to(z.device)
        twins = sum(times for times in stored.values() if times > 1) / max(len(self), 1)
        by_chance = len(z) * twins + 3 * math.sqrt(len(z) * twins * (1 - twins))
        return found if int(found.sum()) > by_chance else torch.zeros_like(found)

    def _new_numbers(self, n: int) -> Tensor:
        self._arrived += n
        return torch.arange(self._arrived - n, self._arrived, device=self._number.device)

    def _replace(
        self, z: Tensor, y: Tensor, number: Tensor, capacity: int, dtype: torch.dtype
    ) -> None:
        self._count = z.shape[0]
        self._z = self._z.new_empty(capacity, z.shape[1], dtype=dtype)
        self._y, self._number = (self._y.new_empty(capacity) for _ in range(2))
        for own, rows in ((self._z, z), (self._y, y), (self._number, number)):
            own[: self._count] = rows.detach()

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        destination[prefix + "z"], destination[prefix + "y"] = self.z, self.y

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take over the rows that arrive, however many they are."""
        _, _, missing_keys, _, error_msgs = args
        z, y = state_dict.get(prefix + "z"), state_dict.get(prefix + "y")
        if z is None or y is None:
            missing_keys += [prefix + name for name, t in (("z", z), ("y", y)) if t is None]
        elif z.dim() != 2 or z.shape[1] != self._z.shape[1] or y.shape != z.shape[:1]:
            expected = f"{prefix}z of shape (n, {self._z.shape[1]}) and {prefix}y of shape (n,)"
            error_msgs.append(f"expected {expected}, got {tuple(z.shape)} and {tuple(y.shape)}")
        else:
            self._replace(z, y, self._new_numbers(z.shape[0]), z.shape[0], z.dtype)
            self._rewrites += 1


class StoringHead(Head):
    """A head that keeps the features that it has observed."""

    passes = 1

    def __init__(
        self, in_features: int, n_classes: int, preset: Preset | None, **options: Any
    ) -> None:
        super().__init__(in_features, n_classes, preset, **options)
        self.memory = Memory(in_features)

    @property
    def class_counts(self) -> Tensor:
        """How many samples (n_classes,) of each class it keeps."""
        with self.lock:
            self._settle()
            return self.memory.y.bincount(minlength=self.n_classes)

    @property
    def proof(self) -> str:
        """What ``forget`` can prove: it keeps them all."""
        return "the samples themselves are checked"

    def _take(self, z: Tensor, y: Tensor, most: int, *weight: Tensor) -> None:
        super()._take(*self._copied(z, y, *weight), most)

    def _copied(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return rows as often as they weigh."""
        if weight is None:
            return z, y
        if not bool(are_whole(weight)):
            raise UnsupportedError(
                f"weights of a '{self.name}' head must be whole numbers: it keeps so many copies"
            )
        times = weight.long()
        return z.repeat_interleave(times.to(z.device), dim=0), y.repeat_interleave(times)

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self.memory.append(z, y)

    def _forget(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self.memory.drop(*self._copied(z, y, *weight))
        self.seen = self.memory.y.bincount(minlength=self.n_classes) > 0

    def _forget_class(self, y: int) -> None:
        self.memory.keep((self.memory.y != y).nonzero().flatten())

    def _merge(self, other: Self) -> Self:
        merged = self._empty(max(self.n_classes, other.n_classes))
        for part in (self, other):
            merged.observe(part.memory.z, part.memory.y)
        return merged

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        self.memory.rearrange(classes, columns)
        self.seen = self.seen[classes]
        self._stale = True

    def _moments(self, columns: Tensor) -> Moments:
        some = slice(None, None, 1 + len(self.memory) // MOST_ROWS)
        z, y = self.memory.z[some], self.memory.y[some]
        return Moments.of(z[:, columns.to(z.device)], y, self.n_classes)

    def _keeps(self, z: Tensor) -> Tensor:
        return self.memory.known_too_often(z)
