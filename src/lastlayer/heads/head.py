"""The contract of a head: ``observe`` learns from a batch, ``forward`` returns logits.

Public verbs come first, then what a new head defines. How they are done is in functions that take a
head: ``changes``, ``answering``, ``calibration``, ``export``, ``head_file``.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import choice, expect, whole
from lastlayer.core.tensors import MOST_CLASSES, check_batch, check_queries
from lastlayer.errors import UnsupportedError
from lastlayer.heads import answering, calibration, changes, export
from lastlayer.heads.calibration import Calibration
from lastlayer.heads.class_names import Names, check_class_names
from lastlayer.heads.forgotten import FORGOTTEN, note_learned
from lastlayer.heads.graph import Inference, Value
from lastlayer.heads.head_file import write_head
from lastlayer.heads.leave_one_out import leave_one_out
from lastlayer.heads.onnx_file import write_onnx
from lastlayer.heads.shared_module import SharedModule
from lastlayer.heads.undo import AllOrNothing, learning

if TYPE_CHECKING:
    from lastlayer.heads.first_rows import Moments
    from lastlayer.heads.maps.feature_map import FeatureMap

Path = str | os.PathLike[str]
Weights = Tensor | Sequence[float] | None  # of samples (n,), at least 0; None: each weighs 1
Preset = Literal["exact", "paper"]
Type = torch.dtype | None  # of numbers that are handed out; None: PyTorch's default, float32


class Head(SharedModule, ABC):
    """A classifier that learns from a stream of batches and is never told their task.

    Classes are the integers 0…n_classes−1. They need not be declared: a head grows when a label
    beyond those it knows arrives. Everything learned is a parameter or a buffer. Any number of
    threads may use a head at once: an answer reflects some whole number of changes.

    ``in_features`` is the size h of a feature vector; ``n_classes`` are known before. The preset
    of a head that has none is None. What else it is made with are ``options``, kept for ``save``.
    """

    passes: ClassVar[int | None]  # how often it may see an example; None: as often as asked
    piece: ClassVar[int] = 1 << 20  # features, or logits, that are worked on at once
    preset: Preset
    seen: Tensor  # (n_classes,) bool: which classes have been observed

    def __init__(
        self, in_features: int, n_classes: int, preset: Preset | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.in_features = whole(in_features, "in_features", least=1)
        n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
        self._presets, self.options = preset is not None, options
        preset = "exact" if preset is None else preset
        self.preset = cast(Preset, choice(preset, ("exact", "paper"), "preset"))
        self._class_names: Names = None
        self.calibration: Calibration | None = None  # what ``calibrate`` found; see its ``stale``
        self._follows = True  # whether rows are new to a calibration that lives
        self.records: dict[str, Any] = {}  # see ``records``: kept by ``save``
        self._derived: dict[str, Any] = {}  # what was made of the head as it is, when asked for
        self._stale = True
        self.register_buffer("seen", torch.zeros(n_classes, dtype=torch.bool))

    @property
    def class_names(self) -> list[str] | None:
        """What the classes 0, 1, … are called, if that is known; kept by ``save`` and ``merge``."""
        names = self._class_names
        return None if names is None else list(names)

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        self._class_names = check_class_names(names)

    @property
    def n_classes(self) -> int:
        """The number of classes: as declared, or one more than the largest label seen."""
        return cast(Tensor, self._buffers["seen"]).numel()

    @property
    def class_counts(self) -> Tensor | None:
        """How many samples (n_classes,) of each class it has learned; None: it does not know."""
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make such a head."""
        chosen = {"preset": self.preset} if self._presets else {}
        return {"in_features": self.in_features, **chosen, **self.options}

    @property
    def abilities(self) -> Abilities:
        """What it can do with its options; its card states the same for the default ones."""
        return Abilities()

    @property
    def proof(self) -> str:
        """What ``forget`` can prove about the samples it is given, in words."""
        return "counts are checked; whether it saw these very samples cannot be proven"

    @property
    def feature_map(self) -> "FeatureMap | None":
        """The map behind which it reads features; None: it reads them as they are."""
        return None

    @property
    def behind_map(self) -> "Head":
        """The head that reads mapped features; itself, where there is no map."""
        return self

    @property
    def rows_to_begin(self) -> int:
        """How many more rows must come before all of it is fixed that depends on the first ones."""
        return 0

    # Learning.

    def observe(self, z: Tensor, y: Tensor, sample_weight: Weights = None) -> None:
        """Learn from features ``z`` (n, h) with labels ``y`` (n,).

        A row counts as often as its weight says, if ``abilities.weighs``; without weights, once.
        """
        changes.observe(self, z, y, sample_weight)

    def observe_all(self, batches: Iterable[tuple[Any, ...]], n_classes: int = 0) -> None:
        """Learn from several batches (z, y) or (z, y, weights) as one change, or from none of them.

        ``n_classes`` declares classes beside those of the batches.
        """
        changes.observe_all(self, batches, n_classes)

    def fresh(self, n_classes: int = 0, first: Tensor | None = None) -> Self:
        """Return such a head that has learned nothing, to be merged with this one.

        Rows ``first`` (n, h) are not learned: they fix what depends on the first ones that come.
        """
        changes.check_able(self, "merges", "be learned in parts, as shards are,")
        return self._empty(n_classes)

    def merge(self, other: "Head") -> Self:
        """Return a new head, equal to one that had observed everything that both have.

        Where both have class names, classes are matched by name, and those that only ``other`` has
        come after its own; else they are matched by number.
        """
        expect(other, Head, "other", "a head")
        return changes.merge(self, cast(Self, other))

    def forget(self, z: Tensor, y: Tensor, sample_weight: Weights = None) -> None:
        """Make it as if the samples ``z`` (n, h) of classes ``y`` had never been observed.

        Weights are those that they were observed with, or a part of them. More samples than there
        are, and samples without which the rest would be impossible, are refused: see ``proof``.
        """
        changes.forget(self, z, y, sample_weight)

    def forget_class(self, y: int) -> None:
        """Make it as if class ``y`` had never been observed."""
        changes.forget_class(self, y)

    # Answering.

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits (n, n_classes); under "exact" a class never seen gets −∞."""
        return answering.logits(self, z)

    def predict(self, z: Tensor, unknown: float | None = None) -> Tensor:
        """Return the class (n,) with the largest logit, the lowest such class at a tie.

        With ``unknown`` the answer is −1, "I don't know", to inputs that are stranger than all but
        this share of the known ones; needs ``calibrate``.
        """
        return answering.classes(self, z, unknown)

    def leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor | None = None) -> Tensor:
        """Return the logits (n, n_classes) of rows that it has learned, each as if it had not been.

        They equal those of a refit without the row, with the same absolute penalty, intensity of
        shrinkage and map. Copies of a row, of equal features and label, are left out with it:
        ``copies`` (n,) says how often each was learned; None: as often as it is among these. A
        class whose only row is left out has logit −∞.
        """
        return leave_one_out(self, z, y, copies)

    def predictor(self, z: Tensor) -> Callable[[], Tensor]:
        """Return a function that predicts these rows, as the head stands when it is called.

        Where a head can, it looks only at what is new since the last time.
        """
        return lambda: self.predict(z)

    def novelty(self, z: Tensor) -> Tensor:
        """Return how strange each input is (n,), in float64: the larger, the less it is known.

        It is a distance to what the head has learned where it keeps that, else the energy
        −log Σ exp(logit). Only the order of such numbers means something.
        """
        return answering.by_pieces(self, z, lambda part: self._judge(part)[1])

    def judge(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and novelty at once, for less work than one after the other."""
        return answering.judged(self, z)

    def probabilities(self, z: Tensor) -> Tensor:
        """Return how probable each class is (n, n_classes), in float64.

        Logits are divided by ``temperature`` before the softmax. Without ``calibrate`` that is the
        head's own, and of heads trained by gradient 1: they order the classes, little more. Once
        the head has changed it is that of before, with a CalibrationWarning.
        """
        calibration.warn_if_stale(self)
        return answering.probabilities(self, z)

    def probabilities_of(self, logits: Tensor) -> Tensor:
        """Return the probabilities that belong to logits (n, n_classes) of this head."""
        with self.lock:
            evidence = logits if self.calibration is None else self._evidence(logits)
            return torch.softmax(evidence.double() / self.temperature, dim=-1)

    def calibrate(self, z: Tensor, y: Tensor, living: bool = False) -> None:
        """Calibrate on features ``z`` (n, h) with labels ``y`` that it has not learned.

        It keeps a temperature, so that probabilities are right on average, and limits of novelty
        for ``predict(z, unknown=share)``, which hold as long as inputs are like these rows; it
        keeps no row. Every class that was learned must be among the rows; rows that the head
        itself keeps are left out, with a CalibrationWarning that names them. Any ``observe``,
        ``merge`` or ``forget`` makes it out of date, unless it is ``living``: then each row that
        is observed is judged before it is learned, and temperature and limits follow. That makes
        each ``observe`` as slow as an answer, and the calibration depend on the order of the rows.
        """
        calibration.calibrate(self, z, y, living)

    @property
    def temperature(self) -> float:
        """What logits are divided by to become probabilities: by ``calibrate``, or the head's own.

        Where the head has changed since it was calibrated, it is that of before.
        """
        return calibration.temperature(self)

    def limit(self, unknown: float) -> float:
        """Return the novelty above which ``predict(z, unknown)`` answers −1."""
        calibration.a_share(unknown, "unknown")
        return calibration.up_to_date(self).limit(unknown)

    def as_linear(self, dtype: Type = None) -> nn.Linear:
        """Return an ordinary layer that predicts the same class, if ``abilities.linear`` says so.

        Its parameters have the ``dtype``; None: PyTorch's default, float32.
        """
        return export.as_linear(self, dtype)

    def as_module(self, unknown: float | None = None, dtype: Type = None) -> Inference:
        """Return the head in its present state as a module that only predicts, to export it.

        It checks and learns nothing. Its ``forward(z)`` returns class, probabilities and novelty,
        as ``predict(z, unknown)``, ``probabilities`` and ``novelty`` do, but for rounding. Its
        numbers have the ``dtype``, torch.float32 or float64; None: PyTorch's default, float32.
        """
        return export.as_module(self, unknown, dtype)

    def export_onnx(self, path: Path, unknown: float | None = None, dtype: Type = None) -> None:
        """Write ``as_module(unknown, dtype)`` to an ONNX file, for a service to run.

        Class names, temperature and limits are in its metadata. Needs the extra ``onnx``.
        """
        write_onnx(self.as_module(unknown, dtype), path)

    def save(self, path: Path) -> None:
        """Write the head to a safetensors file; ``load_head`` reads it again."""
        write_head(path, self)

    # What a new head defines.

    @abstractmethod
    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        """Learn from a checked batch whose classes are all known.

        Where rows weigh, ``weight`` is one tensor (n,) of numbers above 0 in float64.
        """

    @abstractmethod
    def _logits(self, z: Tensor) -> Tensor:
        """Return the logits of checked features, whichever classes have been seen."""

    def _refresh(self) -> None:
        """Recompute what follows from the data; called by the first forward after a change."""

    def _grow(self, n_classes: int) -> None:
        """Make room for classes up to ``n_classes``; subclasses extend their own state too."""
        self.seen = torch.cat([self.seen, self.seen.new_zeros(n_classes - self.n_classes)])

    def _squares(self) -> tuple[float, float]:
        """Return how many rows its sums hold, and Σ ‖z‖² of these; (0, 0): it keeps no sums."""
        return 0.0, 0.0

    # What it defines where its abilities say so, and why where they do not.

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        raise NotImplementedError

    def _merge(self, other: Self) -> Self:
        raise NotImplementedError

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        """Number classes and columns of features anew, in new tensors; for heads that merge.

        Class i becomes what ``classes[i]`` was (others have no samples), and column j what
        ``columns[j]`` was; None: columns stay.
        """
        raise NotImplementedError

    def _forget(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        raise NotImplementedError

    def _forget_class(self, y: int) -> None:
        raise NotImplementedError

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        """Return the logits of checked rows without themselves; it is ready to answer."""
        raise NotImplementedError

    def _why_not(self, ability: str) -> str:
        """Return why the head lacks an ability, and what to do about it."""
        return "what it has learned depends on the order of its data"

    # What it may know better than the contract: how strange an input is, how sure an answer.

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        """Measure how strange some rows (n, h) with these logits are (n,)."""
        return -torch.logsumexp(logits.double(), dim=-1)

    def _moments(self, columns: Tensor) -> "Moments | None":
        """Return how the rows learned lie, of some columns; None: it keeps nothing that tells."""
        return None

    def _own_temperature(self) -> float:
        """Return the temperature of a head that was not calibrated; it is ready to answer."""
        return 1.0

    def _evidence(self, logits: Tensor) -> Tensor:
        """Return what calibrated probabilities are the softmax of, after a temperature."""
        return logits

    def _evidence_graph(self, logits: Value) -> Value:
        """Write down ``_evidence``."""
        return logits

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        """Write down how logits and novelty come from features; it is ready to answer."""
        no = f"a '{self.name}' head cannot become a module or an ONNX file"
        raise UnsupportedError(f"{no}: it defines no _answer_graph")

    def _keeps(self, z: Tensor) -> Tensor:
        """Tell which rows (n, h) are among those that it keeps, beyond what chance explains."""
        return torch.zeros(len(z), dtype=torch.bool, device=z.device)

    def _empty(self, n_classes: int) -> Self:
        """Return such a head that has learned nothing."""
        return type(self)(**self.settings, n_classes=n_classes).to(self.seen.device)

    def _check_batch(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
        """Check a batch; return it, and its largest label or −1."""
        seen = cast(Tensor, self._buffers["seen"])  # by its name alone it is found later
        return check_batch(z, y, self.in_features, seen.device)

    def _check_features(self, z: Tensor) -> Tensor:
        """Check queries, which stay on their device."""
        return check_queries(z, self.in_features)

    def _observe(self, z: Tensor, y: Tensor, most: int) -> None:
        """Learn from a checked batch of classes up to ``most``, as a change of its own."""
        with AllOrNothing(self), learning(self):
            self._take(z, y, most)

    def _take(self, z: Tensor, y: Tensor, most: int, *weight: Tensor) -> None:
        """Learn from a checked batch, as part of a change."""
        lives = calibration.follow(self, z, y)
        if most >= self.n_classes:
            self._grow(most + 1)
        self.seen = self.seen.index_fill(0, y, True)
        self._learn(z, y, *weight)
        if FORGOTTEN in self.records:
            note_learned(self, FORGOTTEN, z, y)
        self._mark_changed(calibrated=lives)

    def _mark_changed(self, calibrated: bool = False) -> None:
        """Note that what follows from the data, and mostly the calibration, are out of date."""
        if not calibrated and self.calibration is not None and not self.calibration.stale:
            self.calibration = replace(self.calibration, stale=True)
        self._stale = True

    def _judge(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (n, n_classes) of some rows, and how strange they are (n,)."""
        return answering.judge(self, z)
