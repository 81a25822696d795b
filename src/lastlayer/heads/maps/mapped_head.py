"""A head behind a feature map, which is the same for a whole stream: it reads what that gives."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.catalogue.map_widths import (
    MANY,
    PRODUCTS,
    WIDTH,
    all_products,
    default_map,
    mapped_width,
)
from lastlayer.core.checks import whole
from lastlayer.errors import MergeError, OptionError
from lastlayer.heads.answering import renew
from lastlayer.heads.changes import ALIKE, take
from lastlayer.heads.graph import Value, masked
from lastlayer.heads.head import Head
from lastlayer.heads.maps.feature_map import ROWS, FeatureMap, make_map
from lastlayer.heads.neighbours.stored_rows import Memory
from lastlayer.heads.statistics.novelty import InDeviations, PartlyRelative
from lastlayer.heads.statistics.statistics_head import ONE_SCATTER, StatisticsHead, check_budget
from lastlayer.heads.undo import AllOrNothing, GradientsAsBefore, learning

Width = int | Literal["auto"]
_PIECE = {"cpu": 32 << 20}  # bytes of mapped features at a time
_MOST = 256 << 20  # the same on a GPU, where each piece costs a fixed time
_OF_MAPPED_ROWS = ("order_free", "merges", "forgets", "leaves_out", "weighs")


class MappedHead(Head):
    """A head that reads class statistics of mapped features.

    A map of unit rows depends on no row, and all is exact. What of another map depends on the data
    is fixed by the first 1,000 rows, however they are cut into batches; those rows are kept until
    then, and no longer. Asked before, it answers by a map fitted to the rows so far, which is
    discarded. For a given map neither order nor batches matter, merging is exact, and so is
    forgetting; but no row can be taken out of such a map itself.

    Args:
        width: the size of a mapped feature vector, or "auto": h + 2,080 of products, of fewer than
            64 features all of them; 2,000 of other maps. Statistics take width² · 8 bytes.
        map: "relu", "fourier", "quadratic", or "auto": from 64 features on quadratic, or fourier
            where the width exceeds all products; else the one of this head.
        seed: of the map's projection.
        rows: "unit" scales each row to length 1 first, "as_is" does not; "auto": unit for the
            automatic map, and for a quadratic one, from 64 features on.
        budget: bytes that its statistics may take.
        like: a head, or its map, to take a fixed map from; width, map, seed and rows are then its
            own.
        **options: of the head behind the map.
    """

    passes = 1
    kind: type[StatisticsHead]  # what reads the mapped features
    of_few: ClassVar[str]  # the map of fewer than 64 features

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        width: Width,
        map: str,
        seed: int,
        rows: str,
        budget: int,
        like: "FeatureMap | MappedHead | None",
        **options: Any,
    ) -> None:
        chosen = {"seed": seed} | self._chosen(in_features, width, map, rows)
        if like is not None:
            chosen = _taken_from(like, in_features)
        if chosen["rows"] == "as_is" and chosen["map"] != "quadratic":  # as in files of 0.2
            del chosen["rows"]
        super().__init__(in_features, n_classes, **chosen, budget=budget, **options)
        self._check_budget(n_classes)
        self.map = self._make_map()
        if like is not None:
            self.map.load_state_dict(_map_of(like).state_dict())
        self.first = Memory(in_features).double()
        self._inner_options = options
        self.inner = self._make_inner()
        self._provisional: tuple[FeatureMap, StatisticsHead] | None = None

    def _chosen(self, h: int, width: Width, map: str, rows: str) -> dict[str, Any]:
        """Return the width, the map and its rows, from the number of features where "auto"."""
        h = whole(h, "in_features", least=1)
        asked = mapped_width(h) if width == "auto" else whole(width, "a width", least=1)
        kind = map
        if map == "auto":
            kind = (default_map(h, asked) if rows != "as_is" else None) or self.of_few
        if rows == "auto":
            found = map == "auto" and default_map(h, asked) == kind
            rows = "unit" if found or (kind == "quadratic" and h >= MANY) else "as_is"
        if width == "auto":
            asked = min(h + PRODUCTS, all_products(h)) if kind == "quadratic" else WIDTH
        return {"width": asked, "map": kind, "rows": rows}

    def _make_map(self) -> FeatureMap:
        names = [name for name in ("width", "seed", "rows") if name in self.options]
        chosen = {name: self.options[name] for name in names}
        return make_map(self.options["map"], self.in_features, **chosen)

    def _make_inner(self) -> StatisticsHead:
        return self.kind(self.options["width"], self.n_classes, **self._inner_options)

    @property
    def abilities(self) -> Abilities:
        """As the head behind the map, for a given map; it is not linear in the features."""
        inner = self.inner.abilities
        of_map = {name: getattr(inner, name) for name in _OF_MAPPED_ROWS}
        return Abilities(**of_map)

    def _why_not(self, ability: str) -> str:
        if ability == "forgets_class":
            return ONE_SCATTER
        return self.inner._why_not(ability)

    @property
    def feature_map(self) -> FeatureMap:
        """The map behind which it reads features."""
        return self.map

    @property
    def behind_map(self) -> StatisticsHead:
        """The head that reads mapped features."""
        return self.inner

    @property
    def rows_to_begin(self) -> int:
        """How many more rows must come before its map is fixed."""
        with self.lock:
            return 0 if self.map.fitted else ROWS - len(self.first)

    def fresh(self, n_classes: int = 0, first: Tensor | None = None) -> Self:
        """Return such a head that has learned nothing, with the same map."""
        made = super().fresh(n_classes)
        with self.lock, GradientsAsBefore():
            if not self.map.fitted and first is not None and len(first) >= self.rows_to_begin:
                rows = torch.cat([self.first.z.double(), first.double()])[:ROWS]
                made.map.fit(rows)
            else:
                made.map.load_state_dict(self.map.state_dict())
        return made

    @property
    def class_counts(self) -> Tensor:
        """How many samples (n_classes,) of each class it has learned, or keeps for its map."""
        with self.lock:
            self._settle()
            return self.inner.class_counts + self.first.y.bincount(minlength=self.n_classes)

    def _squares(self) -> tuple[float, float]:
        first = self.first.z
        if self.map.fitted:
            return self.inner._squares()
        return float(len(first)), float(first.double().square().sum())

    @property
    def proof(self) -> str:
        """What ``forget`` can prove: as the head behind the map, of mapped features."""
        if self.map.rows == "unit":
            return f"{self.inner.proof}; its map depends on no row"
        return f"{self.inner.proof}; its map stays scaled to its first {ROWS} rows"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to another device, but stay in float64, the kept rows too."""
        with self.lock:
            super()._apply(lambda t: t.to(fn(t[:0]).device), recurse)
            self._stale, self._provisional = True, None
        return self

    def _check_budget(self, n_classes: int) -> None:
        width = self.options["width"]
        if isinstance(width, int):
            needed = 8 * (width * width + n_classes * (width + 1) + width * self.in_features)
            what = f"width {width} and {n_classes} classes"
            check_budget(what, needed, self.options["budget"], "choose a smaller width")

    def _grow(self, n_classes: int) -> None:
        self._check_budget(n_classes)
        super()._grow(n_classes)
        self.inner._grow(n_classes)

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self._provisional = None
        if self.map.fitted:
            self._map_and_learn(z, y, *weight)
            return
        missing = ROWS - len(self.first)
        # Rows wait for the map without weights: those that have some fix it at once.
        if len(z) >= missing or weight:
            self.map.fit(torch.cat([self.first.z.double(), z[:missing].double()]))
            self._fold_first()
            self._map_and_learn(z, y, *weight)
        else:
            self.first.append(z.double(), y)

    def _fold_first(self) -> None:
        """Learn the rows that were kept for the map, and keep them no longer."""
        self._map_and_learn(self.first.z, self.first.y)
        self.first.keep(self.first.y[:0])

    def _map_and_learn(self, z: Tensor, *of: Tensor) -> None:
        for rows, *others in zip(*map(self._cut, (z, *of)), strict=True):
            take(self.inner, self.map(rows), *others)

    def _settle(self) -> None:
        super()._settle()
        if self.inner._waits():
            with AllOrNothing(self), learning(self):
                self.inner._unfolded.fold()

    def _cut(self, rows: Tensor) -> Iterator[Tensor]:
        most = _PIECE.get(self.seen.device.type, _MOST)
        return iter(rows.split(max(most // (8 * self.map.width), 1)))

    def _merge(self, other: Self) -> Self:
        mine, others = self.map.fitted, other.map.fitted
        if mine and others and not self.map.alike(other.map):
            differ = "read columns in another order"
            if self.map.rows != "unit":
                differ = f"were fixed by different first rows, or {differ}"
            raise MergeError(
                f"two '{self.name}' heads must have the same map to be merged, but theirs {differ}"
                f": {ALIKE}"
            )
        merged = self._empty(max(self.n_classes, other.n_classes))
        merged.map.load_state_dict((self if mine or not others else other).map.state_dict())
        merged.inner = self.inner.merge(other.inner)
        for part in (self, other):
            merged._learn(part.first.z, part.first.y)
        merged._take_counts()
        return merged

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        self.inner._rearrange(classes, None)
        self.first.rearrange(classes, columns)
        # A map that is not fixed yet is the one of the seed, in whatever order columns come.
        if columns is not None and self.map.fitted:
            self.map.rearrange(columns)
        self.seen = self.seen[classes]
        self._take_counts()

    def _forget(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        if len(z) == 0:
            return
        if self.map.fitted:
            for rows, *of in zip(*map(self._cut, (z, y, *weight)), strict=True):
                self.inner._forget(self.map(rows), *of)
        else:
            self.first.drop(z.double(), y)
        self._take_counts()

    def _take_counts(self) -> None:
        waiting = self.first.y.bincount(minlength=self.n_classes) > 0
        self.seen = self.inner.seen | waiting
        self._stale, self._provisional = True, None

    def _refresh(self) -> None:
        self._provisional = None if self.map.fitted else self._fit_provisionally()
        renew(self._reading()[1])

    def _fit_provisionally(self) -> tuple[FeatureMap, StatisticsHead]:
        """Make the map and the head that the rows so far would give."""
        feature_map = self._make_map().to(self.seen.device)
        feature_map.fit(self.first.z, provisional=True)
        inner = self._make_inner().to(self.seen.device)
        inner.observe(feature_map(self.first.z), self.first.y)
        return feature_map, inner

    def _reading(self) -> tuple[FeatureMap, StatisticsHead]:
        return self._provisional or (self.map, self.inner)

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        feature_map, inner = self._reading()
        measure = _partly_relative(inner)
        return torch.cat([measure.novelty(feature_map(rows)) for rows in self._cut(z)])

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        feature_map, inner = self._reading()
        mapped = feature_map.graph(z)
        logits = masked(inner._logits_graph(mapped), self.seen)
        return logits, _partly_relative(inner).graph(mapped)

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        feature_map, inner = self._reading()
        parts = zip(*(self._cut(t) for t in (z, y, copies)), strict=True)
        return torch.cat([inner._leave_one_out(feature_map(rows), *of) for rows, *of in parts])

    def _own_temperature(self) -> float:
        return self._reading()[1]._own_temperature()

    def _keeps(self, z: Tensor) -> Tensor:
        return self.first.known_too_often(z)

    def _logits(self, z: Tensor) -> Tensor:
        feature_map, inner = self._reading()
        logits = [inner._logits(feature_map(rows)) for rows in self._cut(z)]
        return torch.cat(logits).masked_fill(~self.seen, -torch.inf)


def _partly_relative(inner: StatisticsHead) -> PartlyRelative:
    """Return what measures novelty behind a map, without a matrix as wide and as high as it."""
    relative = inner.relative_mahalanobis()
    return PartlyRelative(InDeviations(relative.means, relative.deviation), relative, 0.9)


def _map_of(like: object) -> FeatureMap:
    found = like.feature_map if isinstance(like, Head) else like
    if not isinstance(found, FeatureMap):
        raise OptionError(f"like must be a head with a map, or a map, got a {type(like).__name__}")
    return found


def _taken_from(like: object, in_features: int) -> dict[str, Any]:
    """Return the width, the map and the seed of a map that is handed over."""
    found = _map_of(like)
    if found.in_features != in_features:
        raise OptionError(
            f"like must be a map of {in_features} features, got one of {found.in_features}"
        )
    if not found.fitted:
        raise OptionError(
            f"like must be a map that is fixed, got one that waits for its first {ROWS} rows: "
            "let that head observe them, or fit a map of make_map to rows of your choice"
        )
    return {"width": found.width, "map": found.name, "seed": found.seed, "rows": found.rows}
