"""The contract of a head: ``observe`` learns from a batch, ``forward`` returns logits."""

import copy
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from lastlayer.arguments import choice, expect, kind_of, short, whole
from lastlayer.catalogue import Abilities, able
from lastlayer.errors import (
    ArgumentError,
    DataError,
    LabelError,
    MergeError,
    NotCalibratedError,
    NotLearnedError,
    OptionError,
    StateError,
    UnsupportedError,
)
from lastlayer.heads.calibration import (
    Calibration,
    a_share,
    fit_temperature,
    rows_for_temperature,
)
from lastlayer.heads.finite import LARGEST, are_usable, bad_features
from lastlayer.heads.graph import Graph, Inference, Value, is_traced
from lastlayer.heads.head_file import write_head
from lastlayer.heads.impossible import ImpossibleError
from lastlayer.heads.kinds import (
    MOST_CLASSES,
    check_feature_kind,
    check_label_kind,
    check_range,
    ends,
    kind,
)
from lastlayer.heads.neighbours.memory import Memory
from lastlayer.heads.onnx_file import write_onnx
from lastlayer.heads.resizable import Resizable
from lastlayer.heads.undo import AllOrNothing, GradientsAsBefore, Lock, has_parameters, settle
from lastlayer.names import class_name

Preset = Literal["exact", "paper"]
_PIECE = 1 << 20  # features, or logits, that are worked on at once


def learning(head: nn.Module) -> AbstractContextManager[object]:
    """Make ordinary tensors without gradients in this block, so that they can be changed later.

    PyTorch's settings are left alone where they make no difference, as for all heads of ours: an
    interrupt at the wrong moment would leave them changed for good.
    """
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return torch.no_grad() if has_parameters(head) else nullcontext()


def _without_gradient(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class Head(Resizable, ABC):
    """A classifier that learns from a stream of batches and is never told their task.

    Classes are the integers 0…n_classes−1. They need not be declared: a head grows when a label
    beyond those it knows arrives. Everything learned is a parameter or a buffer.

    Any number of threads may use a head at once. Changes are made one after the other, and an
    answer reflects some whole number of them.

    Args:
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand (0: none).
        preset: "exact", or "paper" for the paper's method with its quirks.
        **options: what else the head was made with, kept for ``save``.
    """

    name: str
    passes: ClassVar[int | None]  # how often it may see an example; None: as often as asked
    disposable = False  # whether it is thrown away after an error, so that nothing need be undone
    preset: Preset
    seen: Tensor  # (n_classes,) bool: which classes have been observed

    def __init__(self, in_features: int, n_classes: int, preset: Preset, **options: Any) -> None:
        super().__init__()
        self.in_features = whole(in_features, "in_features", least=1)
        n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
        self.preset = cast(Preset, choice(preset, ("exact", "paper"), "preset"))
        self.options = options
        self._class_names: tuple[str, ...] | None = None
        self._calibration: Calibration | None = None
        self._derived: dict[str, Any] = {}  # what was made of the head as it is, when asked for
        self._stale = True
        self.lock = Lock()  # taken by every public method that reads or changes what was learned
        self._under_way: AllOrNothing | None = None  # what is under way, or was interrupted
        self.register_buffer("seen", torch.zeros(n_classes, dtype=torch.bool))

    @property
    def class_names(self) -> list[str] | None:
        """What the classes 0, 1, … are called, if that is known; kept by ``save`` and ``merge``."""
        names = self._class_names
        return None if names is None else list(names)

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        if names is not None:
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise ArgumentError(f"expected class names as a list, got {kind(names)}")
            for name in names:
                if not isinstance(name, str):
                    raise ArgumentError(f"expected a class name as a str, got {kind_of(name)}")
            if len(set(names)) < len(names):
                raise OptionError("expected a different name for each class")
        self._class_names = None if names is None else tuple(names)

    @property
    def n_classes(self) -> int:
        """The number of classes: as declared, or one more than the largest label seen."""
        return cast(Tensor, self._buffers["seen"]).numel()

    @property
    def class_counts(self) -> Tensor | None:
        """How many samples (n_classes,) of each class it has learned; None: it does not know."""
        return None

    @property
    def proof(self) -> str:
        """What ``forget`` can prove about the samples it is given, in words."""
        return "counts are checked; whether it saw these very samples cannot be proven"

    @property
    def calibration_part(self) -> dict[str, Any] | None:
        """What a file keeps of its calibration."""
        return None if self._calibration is None else self._calibration.document()

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make such a head."""
        return {"in_features": self.in_features, "preset": self.preset, **self.options}

    @property
    def abilities(self) -> Abilities:
        """What it can do with its options; its card states the same for the default ones."""
        return Abilities()

    @property
    def rows_to_begin(self) -> int:
        """How many more rows must come before all of it is fixed that depends on the first ones."""
        return 0

    def fresh(self, n_classes: int = 0, first: Tensor | None = None) -> Self:
        """Return such a head that has learned nothing, to be merged with this one.

        Args:
            n_classes: classes known beforehand.
            first: rows (n, h) that fix, with those that it keeps, what depends on the first ones;
                they are not learned.
        """
        self._check_able("merges", "be learned in parts, as shards are,")
        return type(self)(**self.settings, n_classes=n_classes).to(self.seen.device)

    def observe(self, z: Tensor, y: Tensor) -> None:
        """Learn from features ``z`` (n, h) with labels ``y`` (n,)."""
        z, y, most = self._check_batch(z, y)
        with self.lock:
            if self._under_way is not None:
                settle(self)
            if not self._put_aside(z, y, most):
                with AllOrNothing(self), learning(self):
                    self._take(z, y, most)

    def observe_all(self, batches: Iterable[tuple[Tensor, Tensor]], n_classes: int = 0) -> None:
        """Learn from several batches as one change: after an error from none of them.

        Args:
            batches: features (n, h) and labels (n,) of each.
            n_classes: classes to declare, beside those of the batches.
        """
        n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
        expect(batches, Iterable, "batches", "pairs of features and labels")
        with self.lock:
            settle(self)
            with AllOrNothing(self), learning(self):
                if n_classes > self.n_classes:
                    self._grow(n_classes)
                for batch in batches:
                    if not isinstance(batch, tuple | list) or len(batch) != 2:
                        raise ArgumentError(f"a batch must be a pair (z, y), got {kind_of(batch)}")
                    self._take_checked(*batch)

    def _take_checked(self, z: Tensor, y: Tensor) -> None:
        """Check a batch and learn from it, as part of a change."""
        z, y, most = self._check_batch(z, y)
        if not self._put_aside(z, y, most):
            self._take(z, y, most)

    def _put_aside(self, z: Tensor, y: Tensor, most: int) -> bool:
        """Return whether a batch needs nothing more now: it is empty, or it can wait."""
        # A calibration goes out of date with the change, or not at all: then nothing waits.
        may_wait = self._calibration is None or self._calibration.stale
        return most < 0 or (may_wait and most < self.n_classes and self._wait(z, y))

    def _take(self, z: Tensor, y: Tensor, most: int) -> None:
        """Learn from a checked batch, as part of a change."""
        if most >= self.n_classes:
            self._grow(most + 1)
        self.seen = self.seen.index_fill(0, y, True)
        self._learn(z, y)
        self._outdate()
        self._stale = True

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits (n, n_classes); under "exact" a class never seen gets −∞."""
        return self._by_pieces(z, self._scores)

    def predict(self, z: Tensor, unknown: float | None = None) -> Tensor:
        """Return the class (n,) with the largest logit, the lowest such class at a tie.

        Args:
            z: features (n, h).
            unknown: answer −1, "I don't know", to inputs that are stranger than all but this share
                of the known ones; needs ``calibrate``. None: answer every input with a class.
        """
        if unknown is None:
            return self._by_pieces(z, lambda part: self._scores(part).argmax(dim=-1))
        with self.lock:
            limit = self.limit(unknown)

            def answer(part: Tensor) -> Tensor:
                logits, novelty = self._judge(part)
                return logits.argmax(dim=-1).masked_fill(novelty > limit, -1)

            return self._by_pieces(z, answer)

    def novelty(self, z: Tensor) -> Tensor:
        """Return how strange each input is (n,), in float64: the larger, the less it is known.

        What is measured depends on the head: a distance to what it has learned where it keeps that,
        else the energy −log Σ exp(logit). Only the order of such numbers means something.
        """
        return self._by_pieces(z, lambda part: self._judge(part)[1])

    def judge(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and novelty at once, for less work than one after the other."""
        with self.lock:
            judged = [self._judge(part) for part in self._pieces(self._ready(z))]
        logits, novelty = zip(*judged, strict=True)
        return torch.cat(logits).detach(), torch.cat(novelty).detach()

    def probabilities(self, z: Tensor) -> Tensor:
        """Return how probable each class is (n, n_classes), in float64.

        Logits are divided by ``temperature`` before the softmax. Without ``calibrate`` that is the
        head's own, and of heads trained by gradient 1: they order the classes, little more.
        """
        with self.lock:
            _ = self.temperature  # before the work: it may be out of date
            return self._by_pieces(z, lambda part: self.probabilities_of(self._scores(part)))

    def probabilities_of(self, logits: Tensor) -> Tensor:
        """Return the probabilities that belong to logits (n, n_classes) of this head."""
        with self.lock:
            evidence = logits if self._calibration is None else self._evidence(logits)
            return torch.softmax(evidence.double() / self.temperature, dim=-1)

    @property
    def temperature(self) -> float:
        """What logits are divided by to become probabilities: by ``calibrate``, or the head's own.

        Where the head has changed since it was calibrated it is unknown: NotCalibratedError.
        """
        with self.lock:
            if self._calibration is None:
                self._make_ready()
                return self._own_temperature()
            return self._calibrated().temperature

    def limit(self, unknown: float) -> float:
        """Return the novelty above which ``predict(z, unknown)`` answers −1."""
        a_share(unknown, "unknown")
        return self._calibrated().limit(unknown)

    @property
    def calibration(self) -> Calibration | None:
        """What ``calibrate`` found; its ``stale`` says whether the head has changed since."""
        return self._calibration

    @calibration.setter
    def calibration(self, found: Calibration | None) -> None:
        if found is not None:
            expect(found, Calibration, "calibration", "a Calibration or None")
        self._calibration = found

    def calibrate(self, z: Tensor, y: Tensor) -> None:
        """Calibrate on features ``z`` (n, h) with labels ``y`` that it has not learned.

        It keeps a temperature, so that probabilities are right on average, and limits of novelty
        for ``predict(z, unknown=share)``, which hold as long as inputs are like these rows; it
        keeps no row. What the head answers does not change. Any ``observe``, ``merge`` or
        ``forget`` makes it out of date. Every class that was learned must be among the rows.

        >>> import lastlayer as ll
        >>> data = ll.load_features("cifar10")
        >>> head = ll.make_head("slda", in_features=64)
        >>> head.observe(data.train.z, data.train.y)
        >>> head.calibrate(data.test.z[:5000], data.test.y[:5000])
        >>> answers = head.predict(data.test.z[5000:], unknown=0.05)
        >>> round((answers == -1).double().mean().item(), 3)
        0.046
        """
        with self.lock:
            self._calibration = self._calibrate(z, y)

    def _calibrate(self, z: Tensor, y: Tensor) -> Calibration:
        z = self._ready(z)
        check_label_kind(y, len(z))
        if not len(z):
            raise DataError("expected rows to calibrate with, got none")
        y = y.to(device=self.seen.device, dtype=torch.int64)
        self._check_calibration_rows(z, y)
        fitted = rows_for_temperature(len(z), self.n_classes).to(self.seen.device)
        wanted = torch.zeros(len(z), dtype=torch.bool, device=self.seen.device)
        wanted[fitted] = True
        novelty, evidence, start = [], [], 0
        for part in self._pieces(z):
            logits, strange = self._judge(part)
            novelty.append(strange)
            evidence.append(self._evidence(logits)[wanted[start : start + len(part)]])
            start += len(part)
        temperature = fit_temperature(torch.cat(evidence), y[fitted])
        return Calibration.of(temperature, torch.cat(novelty))

    def _by_pieces(self, z: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """Check the queries, and answer them piece by piece."""
        with self.lock:
            z = self._ready(z)
            parts = [answer(part) for part in self._pieces(z)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).detach()

    def _ready(self, z: Tensor) -> Tensor:
        """Check the queries, and make the head ready to answer."""
        if is_traced():
            raise UnsupportedError(
                f"this '{self.name}' head cannot be traced or exported itself, since it inspects "
                "its inputs: use head.as_module() or head.export_onnx(path)"
            )
        z = self._check_features(z, move=False)
        self._make_ready()
        return z

    def _settle(self) -> None:
        """Undo what an interrupt left half done, and learn what waits; outside of changes only."""
        settle(self)
        if self._waits():
            with AllOrNothing(self), learning(self):
                self._fold()

    def _waits(self) -> bool:
        """Return whether rows that it has put aside are still to be learned."""
        return False

    def _fold(self) -> None:
        """Learn the rows that wait, as part of a change."""

    def _make_ready(self) -> None:
        """Make sure that it can answer."""
        if self._under_way is not None:
            settle(self)
        self._check_learned()
        self._refresh_if_stale()

    def _pieces(self, z: Tensor) -> Sequence[Tensor]:
        """Cut queries into pieces, so that intermediate results stay small."""
        return z.split(max(_PIECE // max(self.n_classes, self.in_features), 1)) if len(z) else [z]

    def _scores(self, z: Tensor) -> Tensor:
        """Return the logits of some rows."""
        logits = self._logits(z.to(self.seen.device, non_blocking=True))
        if self.preset == "exact" and not self._all_seen():
            logits = logits.masked_fill(~self.seen, -torch.inf)
        return logits

    def merge(self, other: "Head") -> Self:
        """Return a new head, equal to one that had observed everything that both have."""
        expect(other, Head, "other", "a head")
        if type(other) is not type(self) or other.settings != self.settings:
            raise MergeError(
                f"expected a '{self.name}' head made with {self.settings}, "
                f"got '{other.name}' with {other.settings}"
            )
        self._check_able("merges", "be merged")
        # In one order, whichever of two threads merges which with which.
        first, second = sorted((self, other), key=id)
        with first.lock, second.lock, GradientsAsBefore(), learning(self):
            self._settle()
            other._settle()
            names = self._joint_names(other)
            merged = self._merge(other)
            merged._class_names = names
            merged._calibration = self._calibration or other._calibration
            merged._outdate()
        return merged

    def forget(self, z: Tensor, y: Tensor) -> None:
        """Make it as if the samples ``z`` (n, h) of classes ``y`` had never been observed.

        Impossible requests are refused: more samples than there are, and samples without which
        the rest would be impossible. ``proof`` says what that proves.
        """
        self._check_able("forgets", "forget samples")
        z, y, most = self._check_batch(z, y)
        with self.lock:
            self._settle()
            if most >= self.n_classes:
                raise self._unknown_class(most)
            if most < 0:
                return
            self._check_counts(y)
            try:
                with AllOrNothing(self), learning(self):
                    self._forget(z, y)
                    self._outdate()
                    self._stale = True
            except ImpossibleError as error:
                of = "" if error.c is None else f" of {self._called(error.c)}"
                raise DataError(
                    f"cannot forget these {len(y)} samples{of}: {error.reason}; nothing was changed"
                ) from None

    def forget_class(self, y: int) -> None:
        """Make it as if class ``y`` had never been observed."""
        self._check_able("forgets_class", "forget a class")
        try:
            number = operator.index(y)
        except TypeError:
            raise self._unknown_class(y) from None
        with self.lock:
            self._settle()
            if isinstance(y, bool) or not 0 <= number < self.n_classes:
                raise self._unknown_class(y)
            with AllOrNothing(self), learning(self):
                self._forget_class(number)
                stays = torch.arange(self.n_classes, device=self.seen.device) != number
                self.seen = self.seen & stays
                self._outdate()
                self._stale = True

    def as_linear(self, dtype: torch.dtype | None = None) -> nn.Linear:
        """Return an ordinary layer that predicts the same class, if ``abilities.linear`` says so.

        Args:
            dtype: of its parameters; None: PyTorch's default, float32.
        """
        if not self.abilities.linear:
            raise UnsupportedError(
                f"a '{self.name}' head cannot become an nn.Linear: its largest logit is not that "
                f"of one; these heads can: {', '.join(able('linear'))}"
            )
        with self.lock, GradientsAsBefore():
            self._make_ready()
            return self._as_linear(dtype)

    def as_module(
        self, unknown: float | None = None, dtype: torch.dtype | None = None
    ) -> Inference:
        """Return the head in its present state as a module that only predicts, to export it.

        It checks nothing and learns nothing. Its ``forward(z)`` gives the class (n,), how probable
        each class is (n, n_classes) and the novelty (n,), as ``predict``, ``probabilities`` and
        ``novelty`` do, but for rounding.

        Args:
            unknown: answer −1 where ``predict(z, unknown)`` does; None: never.
            dtype: of its numbers, torch.float32 or float64; None: PyTorch's default, float32.

        >>> import torch, lastlayer as ll
        >>> head = ll.make_head("mean", in_features=1)
        >>> head.observe(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
        >>> label, probabilities, novelty = head.as_module()(torch.tensor([[2.0]]))
        >>> label.tolist(), novelty.tolist()
        ([0], [1.5])
        """
        return self.answering(unknown, dtype)

    def answering(
        self, unknown: float | None = None, dtype: torch.dtype | None = None, divide_by: float = 1.0
    ) -> Inference:
        """Return ``as_module()`` for features that are divided by a number first."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"expected dtype torch.float32 or float64, got {short(dtype)}")
        with self.lock:
            return self._answering(unknown, dtype, divide_by)

    def _answering(self, unknown: float | None, dtype: torch.dtype, divide_by: float) -> Inference:
        self._make_ready()
        limit = None if unknown is None else self.limit(unknown)
        temperature = self.temperature
        with learning(self):
            graph = Graph(dtype, self.seen.device)
            z = Value(graph, "z")
            if divide_by != 1:
                z = z / torch.full((self.in_features,), divide_by, dtype=torch.float64)
            logits, novelty = self._answer_graph(z)
            evidence = logits if self._calibration is None else self._evidence_graph(logits)
            probabilities = graph.add("Softmax", evidence / temperature, axis=1)
            label = graph.add("ArgMax", logits, axis=1, keepdims=0)
            if limit is not None:
                # The row that set the limit must not be turned away for a digit that is rounded.
                slack = 1e-5 if dtype == torch.float32 else 1e-10
                strange = graph.add("Greater", novelty, limit + slack * abs(limit))
                label = graph.add("Where", strange, torch.tensor([-1]), label)
        about = {
            "head": self.name,
            "in_features": self.in_features,
            "class_names": self.class_names or [str(c) for c in range(self.n_classes)],
            "calibrated": self._calibration is not None,
            "temperature": temperature,
            "unknown": unknown,
            "limit": limit,
            "limits": {} if self._calibration is None else self._calibration.usual_limits(),
        }
        return Inference(graph, (label, probabilities, novelty), about)

    def export_onnx(
        self,
        path: str | os.PathLike[str],
        unknown: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Write ``as_module(unknown, dtype)`` to an ONNX file, for a service to run.

        Class names, temperature and limits of novelty are in its metadata. Needs the extra
        ``onnx``.
        """
        write_onnx(self.answering(unknown, dtype), path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the head to a safetensors file; ``load_head`` reads it again."""
        with self.lock:
            self._settle()
            parts = {"class_names": self.class_names, "calibration": self.calibration_part}
            write_head(path, self.name, self.settings, self.state_dict(), parts)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load the state of such a head, with any number of classes; on error stay as before."""
        if isinstance(state_dict, Mapping):
            state_dict = {name: _without_gradient(value) for name, value in state_dict.items()}
        with self.lock, GradientsAsBefore():
            settle(self)
            try:
                with AllOrNothing(self):
                    return super().load_state_dict(state_dict, *args, **kwargs)
            except (AttributeError, KeyError, RuntimeError) as error:
                raise StateError(
                    f"expected the state of such a '{self.name}' head: {short(error, 300)}"
                ) from error

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return what it has learned by name; copy it before anything else is learned."""
        with self.lock:
            self._settle()
            return super().state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        with self.lock, learning(self):
            self._settle()
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of its own, while no other thread changes it."""
        with self.lock, GradientsAsBefore(), learning(self):
            self._settle()
            made = memo[id(self)] = type(self).__new__(type(self))
            made.__dict__.update(copy.deepcopy(self.__dict__, memo))
            return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: copies, since other threads may go on changing it."""
        return copy.deepcopy(self).__dict__

    @abstractmethod
    def _learn(self, z: Tensor, y: Tensor) -> None:
        """Learn from a checked batch whose classes are all known."""

    @abstractmethod
    def _logits(self, z: Tensor) -> Tensor:
        """Return the logits of checked features, whichever classes have been seen."""

    def _refresh(self) -> None:
        """Recompute what follows from the data; called by the first forward after a change."""

    def _refresh_if_stale(self) -> None:
        if self._stale:
            with AllOrNothing(self), learning(self):
                self._renew()

    def _renew(self) -> None:
        """Refresh what is stale, as part of a change."""
        if self._stale:
            self._refresh()
            self._derived = {}
            self._stale = False

    def _grow(self, n_classes: int) -> None:
        """Make room for classes up to ``n_classes``; subclasses extend their own state too."""
        self.seen = torch.cat([self.seen, self.seen.new_zeros(n_classes - self.n_classes)])

    def _wait(self, z: Tensor, y: Tensor) -> bool:
        """Put a small batch of known classes aside, if the head can, to learn from it later."""
        return False

    def _looks_itself(self, n: int) -> bool:
        """Return whether it takes n rows from where they lie, and looks at their values itself."""
        return False

    def _all_seen(self) -> bool:
        return bool(self.seen.numpy().all() if self.seen.is_cpu else self.seen.all())

    # How strange and how sure: what a head may know better than the contract.

    def _judge(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (n, n_classes) of some rows, and how strange they are (n,)."""
        logits = self._scores(z)
        novelty = self._novelty(z.to(self.seen.device), logits)
        return logits, novelty.double().nan_to_num(torch.finfo(torch.float64).max)

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        """Measure how strange some rows (n, h) with these logits are (n,)."""
        return -torch.logsumexp(logits.double(), dim=-1)

    def _evidence(self, logits: Tensor) -> Tensor:
        """Return what calibrated probabilities are the softmax of, after a temperature."""
        return logits

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        """Write down how logits and novelty come from features; it is ready to answer."""
        raise UnsupportedError(
            f"a '{self.name}' head cannot become a module or an ONNX file: it defines no "
            "_answer_graph"
        )

    def _evidence_graph(self, logits: Value) -> Value:
        """Write down ``_evidence``."""
        return logits

    def _own_temperature(self) -> float:
        """Return the temperature of a head that was not calibrated; it is ready to answer."""
        return 1.0

    def _rows_that_it_keeps(self) -> Memory | None:
        """Return the rows that it has learned, if it keeps them."""
        return None

    def _outdate(self) -> None:
        """Mark the calibration as out of date."""
        if self._calibration is not None and not self._calibration.stale:
            self._calibration = replace(self._calibration, stale=True)

    def _calibrated(self) -> Calibration:
        """Return the calibration, if it is up to date."""
        found = self._calibration
        if found is None or found.stale:
            why = "is not calibrated" if found is None else "has changed since it was calibrated"
            raise NotCalibratedError(
                f"this '{self.name}' head {why}: call calibrate(z, y) with rows that it has not "
                "learned (in the shell: lastlayer calibrate)"
                + ("" if found is None else ", or drop the calibration: calibration = None")
            )
        return found

    def _check_calibration_rows(self, z: Tensor, y: Tensor) -> None:
        """Refuse rows of classes not learned, a class without rows, and rows that were learned."""
        least, most = ends(y)
        check_range(least, most)
        strange = y[(y >= self.n_classes) | ~self.seen[y.clamp(max=self.n_classes - 1)]]
        if len(strange):
            raise LabelError(
                f"expected calibration rows of classes that the head has learned, got "
                f"{self._called(int(strange[0]))}"
            )
        missing = (self.seen & (y.bincount(minlength=self.n_classes) == 0)).nonzero().flatten()
        if len(missing):
            few = ", ".join(self._called(c) for c in missing[:5].tolist())
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise DataError(
                "expected calibration rows of every class that the head has learned, but there are "
                f"none of {few}{more}"
            )
        memory = self._rows_that_it_keeps()
        if memory is not None and (known := memory.known_too_often(z)):
            raise DataError(
                f"expected calibration rows that the head has not learned, but {known} of "
                f"{len(z)} are among those that it keeps: hold rows out before it learns"
            )

    # What a head needs only if its abilities say so.

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        raise NotImplementedError

    def _merge(self, other: Self) -> Self:
        raise NotImplementedError

    def _forget(self, z: Tensor, y: Tensor) -> None:
        raise NotImplementedError

    def _forget_class(self, y: int) -> None:
        raise NotImplementedError

    def _check_able(self, ability: str, what: str) -> None:
        """Refuse what the head cannot do exactly with its options; name the heads that can."""
        if not getattr(self.abilities, ability):
            raise UnsupportedError(
                f"this '{self.name}' head cannot {what} exactly: {self._why_not(ability)}; with "
                f"their default options these heads can: {', '.join(able(ability))}"
            )

    def _why_not(self, ability: str) -> str:
        """Return why the head lacks an ability, and what to do about it."""
        return "what it has learned depends on the order of its data"

    def _check_batch(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
        """Check a batch with at most one synchronisation; return it, and its top label or −1."""
        check_feature_kind(z, self.in_features)
        check_label_kind(y, z.shape[0])
        z = z.detach() if z.requires_grad else z
        if not z.shape[0]:
            return z, y, -1
        here = cast(Tensor, self._buffers["seen"]).device  # nn.Module's way takes its time
        later = (z.is_cpu or z.device != here) and self._looks_itself(z.shape[0])
        if z.is_cuda and y.is_cuda:
            both = [*z.aminmax(), *y.aminmax()]
            *ends_z, least, most = torch.stack([end.double() for end in both]).tolist()
            least, most = int(least), int(most)
            if not all(-LARGEST <= end <= LARGEST for end in ends_z):
                raise bad_features(z)
        else:
            if not later and not are_usable(z):
                raise bad_features(z)
            least, most = ends(y)
        check_range(least, most)
        if not later and z.device != here:
            z = z.to(here)
        plain = y.dtype == torch.int64 and y.device == here  # asked, since to() takes its time
        return z, y if plain else y.to(device=here, dtype=torch.int64), most

    def _check_features(self, z: Tensor, *, move: bool = True) -> Tensor:
        """Check queries; move them to the head's device unless they are taken in pieces."""
        check_feature_kind(z, self.in_features)
        z = z.detach()
        if z.shape[0] and not are_usable(z):
            raise bad_features(z)
        return z.to(self.seen.device) if move else z

    def _joint_names(self, other: "Head") -> tuple[str, ...] | None:
        """Return the class names of both heads; a class may not have two."""
        own, theirs = self._class_names, other._class_names
        if own is None or theirs is None:
            return own or theirs
        for c, (name, their) in enumerate(zip(own, theirs, strict=False)):
            if name != their:
                raise MergeError(
                    f"expected the same names in both heads, but class {c} is '{name}' here and "
                    f"'{their}' there: number the classes the same way, or clear class_names"
                )
        return own if len(own) >= len(theirs) else theirs

    def _check_counts(self, y: Tensor) -> None:
        """Refuse to forget more samples of a class than were learned."""
        counts = self.class_counts
        if counts is None:
            return
        asked = y.bincount(minlength=self.n_classes).to(counts)
        if bool((asked > counts).any()):
            c = int((asked - counts).argmax())
            raise DataError(
                f"cannot forget {int(asked[c])} samples of {self._called(c)}: only "
                f"{int(counts[c])} were learned"
            )

    def _called(self, c: int) -> str:
        """Return what to call a class in a message."""
        names = self._class_names
        return f"'{class_name(names[c])}'" if names and c < len(names) else f"class {c}"

    def _unknown_class(self, y: object) -> LabelError:
        return LabelError(f"expected a class from 0 to {self.n_classes - 1}, got {short(y)}")

    def _check_learned(self) -> None:
        if not bool(self.seen.numpy().any() if self.seen.is_cpu else self.seen.any()):
            raise NotLearnedError(
                f"this '{self.name}' head has learned nothing yet: call observe(z, y) first"
            )

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self.lock:
            super()._load_from_state_dict(*args, **kwargs)
            self._outdate()
            self._stale = True
