"""Heads that learn in one pass: a task that comes in several orders is learned once for all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import card_of
from lastlayer.errors import OptionError, UnsupportedError
from lastlayer.evaluate.pool import Pool, Rules, Schedule, Score, Vectors, learn_rows
from lastlayer.heads import FeatureMap, Head, make_head, make_map
from lastlayer.heads.head import Preset
from lastlayer.heads.maps.feature_map import ROWS

KEPT = 1 << 29  # bytes of statistics that orders may share, at most
TOGETHER = 4  # batches that a head behind a map learns at once
MAPPED = 2000  # test samples that are mapped at a time
SLOW = 1e10  # multiplications before an answer: a fraction of a second on one core
ANSWERS = 10  # of a stream of more tasks, by a head that is so slow to answer

After = tuple[Tensor, nn.Linear | None]  # a head after a task: right answers, and its vectors
Task = tuple[bytes, int]  # its rows, and the seed where that decides which of them are learned


def feed(
    pool: Pool,
    schedules: Sequence[Schedule],
    head: str,
    preset: Preset,
    rules: Rules,
    *,
    keep_vectors: bool = False,
    on_task: Callable[[int], None] | None = None,
    memory: int = KEPT,
) -> list[Score]:
    """Feed the tasks of each schedule to a new head, and score it at first and after each epoch.

    Such a head learns in the first epoch of a task; later epochs change neither it nor its score.
    It is asked after the tasks that ``asked_after`` says; its counts after others are −1.
    A head behind a feature map gets the same map in every order of the same tasks: ``map_rows``
    says which rows fix it. Heads that ignore order are scored once for each set of tasks: what
    single tasks taught is kept in so many bytes of ``memory``, so that other orders can reuse it.

    The head, one with ``passes = 1``, learns on the device of the pool. ``keep_vectors`` returns
    the output vectors of a linear one after each task too; ``on_task`` is called with the number of
    samples after each task of each schedule.
    """
    make = partial(make_head, head, pool.z.shape[1], pool.n_classes, preset=preset)
    _check_rows(head, schedules)
    columns = pool.test_columns().to(pool.z.device)
    like = make()
    asked = {
        n: frozenset(asked_after(head, pool.z.shape[1], pool.n_classes, n, len(pool.z)))
        for n in {len(schedule.tasks) for schedule in schedules}
    }
    if like.feature_map is not None and len(schedules) == 1:
        memory = 0  # no other order can reuse what it learned, and copies are large
    feeder = _Feeder(pool, rules, make, columns, keep_vectors, memory, asked, like.feature_map)
    follow = feeder.in_any_order if like.abilities.order_free else feeder.in_turn
    scores = []
    for schedule in schedules:
        curve, layers = [feeder.nothing()], []
        for rows, (counts, layer) in zip(schedule.tasks, follow(schedule), strict=True):
            curve += [counts] * rules.epochs
            layers.append(layer)
            if on_task is not None:
                on_task(len(rows))
        whole = torch.stack(curve)
        by_class, by_group = whole[:, : pool.n_classes], whole[:, pool.n_classes :]
        scores.append(Score(by_class, by_group, vectors=_vectors(layers)))
    return scores


def _check_rows(head: str, schedules: Sequence[Schedule]) -> None:
    """Refuse at once what a head would refuse after it had learned for long."""
    most = card_of(head).most_rows
    rows = max((sum(map(len, schedule.tasks)) for schedule in schedules), default=0)
    if most is not None and rows > most:
        raise OptionError(f"'{head}' takes at most {most} rows by default, and there are {rows}")


def asked_after(
    head: str, in_features: int, n_classes: int, n_tasks: int, rows: int = 0
) -> list[int]:
    """Return the tasks, from 0, after which a head answers: all, or ten of many, the last included.

    A head that solves a large system or trains a layer before it can answer would take longer to
    answer after each of many small tasks than to learn them all. The paper's heads answer always.

    >>> asked_after("random_slda", 64, 10, n_tasks=100)
    [9, 19, 29, 39, 49, 59, 69, 79, 89, 99]
    >>> asked_after("random_slda", 64, 10, n_tasks=5), len(asked_after("slda", 64, 10, n_tasks=100))
    ([0, 1, 2, 3, 4], 100)
    """
    card = card_of(head)
    if n_tasks <= ANSWERS or card.in_paper or card.refresh(in_features, n_classes, rows) < SLOW:
        return list(range(n_tasks))
    return [-(-n_tasks * (k + 1) // ANSWERS) - 1 for k in range(ANSWERS)]


def _vectors(layers: list[nn.Linear | None]) -> Vectors | None:
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return None
    weight = torch.stack([layer.weight.detach().cpu() for layer in known])
    bias = torch.stack([layer.bias.detach().cpu() for layer in known])
    return Vectors(weight, torch.ones_like(bias), bias)


def map_rows(tasks: Sequence[Tensor]) -> Tensor:
    """Return the rows that fix the feature map of heads that need one.

    1,000 rows in the order of the data: of the task that holds the earliest row, then of the task
    with the next, as far as needed, so that they are the same for all orders of the same tasks.
    """
    in_order = (rows.sort().values for rows in tasks if len(rows))
    ordered = sorted(in_order, key=lambda rows: int(rows[0]))
    return torch.cat(ordered)[:ROWS] if ordered else torch.zeros(0, dtype=torch.int64)


@dataclass
class _Feeder:
    """Shows schedules to heads, and yields the count (N + groups) of right answers after each task.

    With each count comes the head as an ordinary linear layer, or None.
    """

    pool: Pool
    rules: Rules
    make: Callable[..., Head]
    columns: Tensor  # (m, N + groups)
    keep_vectors: bool
    memory: int
    asked: Mapping[int, frozenset[int]]  # number of tasks → those after which a head answers
    map_like: FeatureMap | None = None  # the map of such a head, before it is fitted
    maps: dict[bytes, FeatureMap] = field(default_factory=dict)
    mapped: dict[bytes, Sequence[Tensor]] = field(default_factory=dict)  # the test samples
    learned: dict[tuple[bytes, Task], Head] = field(default_factory=dict)
    counted: dict[tuple[bytes, tuple[Task, ...]], After] = field(default_factory=dict)
    kept: int = 0  # bytes of the heads in ``learned``

    def nothing(self) -> Tensor:
        """Return the counts of a head that cannot predict."""
        return torch.full(self.columns.shape[1:], -1)

    def in_turn(self, schedule: Schedule) -> Iterator[After]:
        """Learn one task after another."""
        head = self._make(schedule)
        answers = self._answers(head, schedule)
        for place, rows in enumerate(schedule.tasks):
            self._learn(head, rows, schedule.seed)
            asked = place in self.asked[len(schedule.tasks)]
            yield self._after(head, answers) if asked else (self.nothing(), None)

    def in_any_order(self, schedule: Schedule) -> Iterator[After]:
        """Learn each distinct task once for all schedules, and score each set of tasks once.

        What a task taught is kept and merged in, as long as there is room and the head can be
        merged; otherwise it is learned again, but only for sets of tasks not scored yet.
        """
        head: Head | None = None
        answers: Callable[[], Tensor] | None = None
        known, waiting = tuple[Task, ...](), list[Tensor]()
        family = self._family(schedule)
        for place, rows in enumerate(schedule.tasks):
            known = tuple(sorted((*known, self._task(rows, schedule.seed))))
            waiting.append(rows)
            if place not in self.asked[len(schedule.tasks)]:
                yield self.nothing(), None
                continue
            if (family, known) not in self.counted:
                before, head = head, head or self._make(schedule)
                for part in waiting:
                    head = self._with(head, part, schedule)
                waiting = []
                if head is not before or answers is None:
                    answers = self._answers(head, schedule)
                self.counted[family, known] = self._after(head, answers)
            yield self.counted[family, known]

    def _task(self, rows: Tensor, seed: int) -> Task:
        return rows.numpy().tobytes(), seed if self._skips(rows) else 0

    def _with(self, head: Head, rows: Tensor, schedule: Schedule) -> Head:
        """Return the head with one more task: merged in if it was kept, otherwise learned now."""
        key = self._family(schedule), self._task(rows, schedule.seed)
        if key not in self.learned and self._has_room(head):
            self.learned[key] = self._make(schedule)
            self._learn(self.learned[key], rows, schedule.seed)
            self.kept += _size(self.learned[key])
        if key in self.learned:
            return head.merge(self.learned[key])
        self._learn(head, rows, schedule.seed)
        return head

    def _has_room(self, head: Head) -> bool:
        can = head.abilities
        return can.merges and not can.keeps_samples and self.kept + _size(head) <= self.memory

    def _family(self, schedule: Schedule) -> bytes:
        """Return a key that is equal for schedules that share a feature map."""
        return b"" if self.map_like is None else map_rows(schedule.tasks).numpy().tobytes()

    def _make(self, schedule: Schedule) -> Head:
        device, like = self.pool.z.device, self.map_like
        if like is None:
            return self.make().to(device)
        key = self._family(schedule)
        if key not in self.maps:
            fresh = make_map(like.name, like.in_features, like.width, like.seed, like.rows).to(
                device
            )
            self.maps[key] = fresh.fit(self.pool.z[map_rows(schedule.tasks).to(device)])
        return self.make(like=self.maps[key]).to(device)

    def _skips(self, rows: Tensor) -> bool:
        return self.rules.skip_single and len(rows) % self.rules.batch_size == 1

    def _learn(self, head: Head, rows: Tensor, seed: int) -> None:
        batches = self.rules.batches(len(rows), self.rules.generator(seed, place=0))
        # To a head behind a map batches make no difference, and each goes through a large matrix.
        at_once = 1 if self.map_like is None else TOGETHER
        together = (batches[start : start + at_once] for start in range(0, len(batches), at_once))
        device = self.pool.z.device
        shown = (rows[torch.cat(positions)].to(device) for positions in together)
        learn_rows(head, self.pool.z, self.pool.y, shown)

    def _answers(self, head: Head, schedule: Schedule) -> Callable[[], Tensor]:
        """Return a function that predicts the test samples, mapped once where there is a map."""
        z, own = self.pool.test_z, head.feature_map
        if own is None or 8 * len(z) * own.width > KEPT:
            return head.predictor(z)
        key = self._family(schedule)
        if key not in self.mapped:
            self.mapped = {key: [own(part) for part in z.split(MAPPED)]}
        mapped = self.mapped[key]
        return lambda: torch.cat([head.behind_map.predict(part) for part in mapped])

    def _after(self, head: Head, answers: Callable[[], Tensor]) -> After:
        if not bool(head.seen.any()):  # its only sample was a batch of one
            return self.nothing(), None
        return self._count(answers), _as_linear(head) if self.keep_vectors else None

    def _count(self, answers: Callable[[], Tensor]) -> Tensor:
        right = (answers() == self.pool.test_y).to(self.columns.dtype)
        return (right @ self.columns).round().to("cpu", torch.int64)


def _size(head: Head) -> int:
    return sum(buffer.numel() * buffer.element_size() for buffer in head.buffers())


def _as_linear(head: Head) -> nn.Linear | None:
    try:
        return head.as_linear(torch.float64)
    except UnsupportedError:
        return None
