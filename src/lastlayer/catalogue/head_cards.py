"""The card of each head, and what is read from it: names, masks, abilities, sizes and costs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

from lastlayer.catalogue.map_widths import (
    MAP_ROWS,
    MOST_WIDTH,
    PRODUCTS,
    all_products,
    default_map,
    half,
    mapped_width,
)
from lastlayer.core.checks import expect
from lastlayer.core.names import look_up
from lastlayer.errors import OptionError, UnknownNameError

Family = Literal["gradient", "statistics", "neighbours"]

MASKS = ("none", "single", "group")
STARTS = ("uniform", "normal")  # as nn.Linear's own rows, or kaiming normal ones
GAINS = ("unit", "frozen")  # of weight_norm: none, or the lengths of its first rows


@dataclass(frozen=True)
class AuthorsCode:
    """A state of the authors' code, in what it decides for every head (docs/decisions/9)."""

    start: str
    gain: str
    batch_size: int


CODES = {
    "may": AuthorsCode("uniform", "unit", 264),  # 2021, and until 23 September
    "september": AuthorsCode("normal", "frozen", 256),
}


@dataclass(frozen=True)
class Abilities:
    """What a head can do; a card states it for the default options, a head for its own.

    A head behind a map draws the map from its first rows (``Head.rows_to_begin``) and keeps it:
    what is said of order and of merging holds for heads with the same map.
    """

    linear: bool = False  # its largest logit is that of an nn.Linear
    keeps_samples: bool = False  # it stores rows of the data
    order_free: bool = False  # neither the order nor the batches of its data matter
    merges: bool = False  # two heads become one that has seen both streams
    forgets: bool = False  # samples can be taken out as if never seen
    forgets_class: bool = False  # a class can be taken out without its samples
    weighs: bool = False  # samples may weigh: a whole weight is so many copies
    leaves_out: bool = False  # it answers for each of its rows as if it had not learned it


@dataclass(frozen=True)
class HeadCard:
    """What the program knows about a head without making one."""

    name: str
    home: str  # "module:Class"
    family: Family
    source: str  # the paper's name for it, or the work it follows
    formula: str  # the logit of class i
    use: str  # when to use it
    state: str  # what it keeps
    size: Callable[[int, int, int], int]  # (features, classes, samples) → bytes of its state
    abilities: Abilities
    refresh: Callable[[int, int, int], float] = lambda h, n_classes, n: 0.0
    """(features, classes, samples) → multiplications before it answers again; 0: few."""
    plain: str = ""  # what it does, for a reader who knows no heads
    most_rows: int | None = None  # that it takes with its default options; None: any number
    answer: Callable[[int, int, int], float] = lambda h, n_classes, n: float(h * n_classes)
    """(features, classes, samples) → multiplications of one answer."""
    arguments: tuple[str, ...] = ()  # what its class is called with, before the sizes
    options: Mapping[str, Any] = field(default_factory=dict)  # and with, unless told otherwise
    of_width: Callable[[int], Mapping[str, Any]] | None = None  # what else a width changes
    version: int = 1  # raised whenever the same stream gives it other numbers by default
    lr: float | None = None  # its learning rate, if it is trained by gradient
    starts: tuple[str, ...] = ()  # preset "paper": how its first rows may be drawn, default first
    gains: tuple[str, ...] = ()  # what factor of its logits may be fixed, default first
    colour: str | None = None  # as "#rrggbb"; None: a spare one of the report
    marker: str | None = None  # a path in the square from −1 to 1; None: a star of the report
    known_as: Mapping[str, str] = field(default_factory=dict)  # other works' names → what to write

    @property
    def in_paper(self) -> bool:
        """Whether it is one of the paper's heads; for any other, both presets are the same."""
        return self.name in PAPER_HEADS

    @property
    def by_gradient(self) -> bool:
        """Whether it is trained by gradient: in steps, optionally masked, for several epochs."""
        return self.family == "gradient"

    def rate(self, asked: float | None) -> float:
        """Return the learning rate to train with: the one asked for, or the head's default."""
        rate = self.lr if asked is None else float(asked)
        if rate is None or not 0 < rate < math.inf:
            raise OptionError(f"the learning rate of '{self.name}' must be above 0, got {rate}")
        return rate

    def start(self, asked: str | None) -> str | None:
        """Return how its rows start under preset "paper"; None where there is no choice.

        >>> HEADS["linear"].start(None), HEADS["linear"].start("normal"), HEADS["slda"].start(None)
        ('uniform', 'normal', None)
        """
        return self._chosen("start", asked, self.starts)

    def gain(self, asked: str | None) -> str | None:
        """Return its fixed gain; None where there is no choice.

        >>> HEADS["weight_norm"].gain(None), HEADS["cosine"].gain(None)
        ('unit', None)
        """
        return self._chosen("gain", asked, self.gains)

    def _chosen(self, option: str, asked: str | None, choices: tuple[str, ...]) -> str | None:
        if asked is None:
            return choices[0] if choices else None
        if not choices:
            raise OptionError(f"'{self.name}' takes no {option}, got '{asked}'")
        return look_up(asked, {choice: choice for choice in choices}, option)

    @property
    def masks(self) -> tuple[str, ...]:
        """The masks that it can be trained with."""
        return MASKS if self.by_gradient else MASKS[:1]

    @property
    def names(self) -> tuple[str, ...]:
        """The head with each of its masks, as they are typed."""
        return tuple(full_name(self.name, mask) for mask in self.masks)


def _layer(name: str, **card: Any) -> HeadCard:
    """Return the card of a layer trained by gradient; its state is the rows and their velocity."""
    return HeadCard(
        name=name,
        home="lastlayer.heads:GradientHead",
        family="gradient",
        arguments=(name,),
        abilities=Abilities(linear=True, weighs=True),
        **card,
    )


_POOLED = {
    "order_free": True, "merges": True, "forgets": True, "leaves_out": True, "weighs": True,
}  # fmt: skip
_ONE_PASS = {
    "order_free": True, "merges": True, "forgets": True, "forgets_class": True, "weighs": True,
}  # fmt: skip


def _behind_map(refresh: int, offset: int, given: int | None = None) -> dict[str, Any]:
    """Return the costs of a head behind its default map, of the default width or a given one.

    ``refresh``: multiplications before it answers again, in width³. ``offset``: numbers beside each
    direction of a map scaled to its first rows.
    """

    def width(h: int) -> int:
        return mapped_width(h) if given is None else given

    def drawn(h: int) -> int:
        kind = default_map(h, width(h))
        if kind == "quadratic":  # of all products none is drawn
            return 0 if width(h) == all_products(h) else 2 * (width(h) - h)
        return width(h)

    def size(h: int, n_classes: int, n: int) -> int:
        kind, wide = default_map(h, width(h)), width(h)
        beside = wide * (kind == "fourier" or (kind is None and offset))
        waiting = n * (h + 1) if kind is None and n < MAP_ROWS else h + (kind is not None)
        return 8 * (n_classes * (wide + 1) + half(wide) + drawn(h) * h + beside + waiting)

    return {
        "size": size,
        "answer": lambda h, n_classes, n: float(max(drawn(h), PRODUCTS) * h + width(h) * n_classes),
        "refresh": lambda h, n_classes, n: float(refresh * width(h) ** 3),
        "options": {} if given is None else {"width": given},
    }


_CARDS = (
    _layer(
        "linear",
        source="Linear",
        formula="z·A_i + b_i",
        use="shuffled data only; forgets most on a stream",
        plain="learns a weight for each feature and class, step by step: how most networks end",
        state="rows, biases and their velocity, float32",
        size=lambda h, n_classes, n: 8 * n_classes * (h + 1),
        lr=0.01,
        starts=STARTS,
        colour="#000000",
        marker="M-1,0A1,1,0,1,0,1,0A1,1,0,1,0,-1,0Z",
    ),
    _layer(
        "linear_no_bias",
        source="Linear_no_bias",
        formula="z·A_i",
        use="like linear, where no class should win by its bias",
        plain="learns a weight for each feature and class, step by step, and no constants",
        state="rows and their velocity, float32",
        size=lambda h, n_classes, n: 8 * n_classes * h,
        lr=0.01,
        starts=STARTS,
        colour="#707070",
        marker="M-.85,-.85H.85V.85H-.85Z",
    ),
    _layer(
        "weight_norm",
        source="WeightNorm",
        formula="z·A_i/‖A_i‖",
        use="where no class should win by the length of its row",
        plain="learns weights step by step, of one length for all classes",
        state="rows and their velocity, float32",
        size=lambda h, n_classes, n: 8 * n_classes * h,
        lr=0.1,
        gains=GAINS,
        colour="#0072b2",
        marker="M0,-1L1,.8H-1Z",
    ),
    _layer(
        "original_weight_norm",
        source="OriginalWeightNorm",
        formula="γ_i · z·A_i/‖A_i‖",
        use="like weight_norm, with learned lengths",
        plain="learns weights step by step, their length for each class apart",
        state="rows, lengths and their velocity, float32",
        size=lambda h, n_classes, n: 8 * n_classes * (h + 1),
        lr=0.1,
        starts=STARTS,
        colour="#56b4e9",
        marker="M0,1L1,-.8H-1Z",
    ),
    _layer(
        "cosine",
        source="CosLayer",
        formula="s · cos(z, A_i)",
        use="where only angles should count; +single for new classes",
        plain="compares directions: that of a sample with a learned one for each class",
        state="rows and their velocity, float32",
        size=lambda h, n_classes, n: 8 * n_classes * h,
        lr=0.1,
        colour="#d55e00",
        marker="M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    ),
    HeadCard(
        "knn",
        home="lastlayer.heads:KnnHead",
        family="neighbours",
        source="KNN",
        formula="log of its share of the vote",
        use="classes of any shape; keeps all features",
        plain="keeps every sample; the nearest ones vote",
        state="every row and its label, float32",
        size=lambda h, n_classes, n: n * (4 * h + 8),
        answer=lambda h, n_classes, n: float(h * n),
        abilities=Abilities(keeps_samples=True, leaves_out=True, **_ONE_PASS),
        colour="#e69f00",
        marker="M1,0L-.8,1V-1Z",
    ),
    HeadCard(
        "mean",
        home="lastlayer.heads:MeanHead",
        family="statistics",
        source="MeanLayer",
        formula="−‖z − μ_i‖",
        use="the simplest and smallest head that never forgets",
        plain="compares a sample with the average of each class",
        state="counts, means and spreads, float64",
        size=lambda h, n_classes, n: 8 * n_classes * (h + 2),
        abilities=Abilities(linear=True, leaves_out=True, **_ONE_PASS),
        colour="#009e73",
        marker="M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    ),
    HeadCard(
        "median",
        home="lastlayer.heads:MedianHead",
        family="neighbours",
        source="MedianLayer",
        formula="−‖z − med_i‖",
        use="like mean, for data with outliers; keeps all features",
        plain="compares a sample with the middle of each class; keeps every sample",
        state="every row and its label, float32",
        size=lambda h, n_classes, n: n * (4 * h + 8),
        abilities=Abilities(linear=True, keeps_samples=True, **_ONE_PASS),
        colour="#6b3d0c",
        marker="M-1,0L.8,1V-1Z",
    ),
    HeadCard(
        "slda",
        home="lastlayer.heads:SldaHead",
        family="statistics",
        source="SLDA",
        formula="z·Λμ_i − ½ μ_iᵀΛμ_i",
        use="the best small linear head, whatever the drift",
        plain="compares a sample with the average of each class, by how samples scatter around it",
        state="counts, means and one scatter, float64",
        size=lambda h, n_classes, n: 8 * (n_classes * (h + 1) + half(h)),
        abilities=Abilities(linear=True, **_POOLED),
        refresh=lambda h, n_classes, n: h**3,
        colour="#cc79a7",
        marker="M0,-1.2L.35,-.42L1.2,-.37L.55,.18L.75,1L0,.54L-.75,1L-.55,.18L-1.2,-.37L-.35,-.42Z",
    ),
    HeadCard(
        "ridge",
        home="lastlayer.heads:RidgeHead",
        family="statistics",
        source="ridge regression; weighed by classes: AIR (arXiv 2408.10349)",
        formula="z·w_i + b_i, w = (G + λI)⁻¹Q",
        use="like slda, where frequent classes should win more often",
        plain="computes a linear layer from sums over all samples, in place of training it",
        state="counts, means and one scatter, float64",
        size=lambda h, n_classes, n: 8 * (n_classes * (h + 1) + half(h)),
        abilities=Abilities(linear=True, **_POOLED),
        refresh=lambda h, n_classes, n: 5 * h**3,
        colour="#5500aa",
        marker="M0.00,-1.10L1.05,-0.34L0.65,0.89L-0.65,0.89L-1.05,-0.34Z",
        known_as={"air": 'make_head("ridge", in_features, weigh="classes")'},
    ),
    HeadCard(
        "random_ridge",
        home="lastlayer.heads:RandomRidgeHead",
        family="statistics",
        source="RanPAC (arXiv 2307.02251)",
        formula="φ(z)·w_i + b_i, φ random and wide",
        use="the first choice with random_slda, whatever the drift; larger and slower than slda",
        plain="computes a linear layer from sums, on thousands of combinations of the features",
        state="counts, means and one scatter of mapped features, the map, float64",
        abilities=Abilities(**_POOLED),
        version=2,  # 0.2 had a map scaled to the first rows, whatever the number of features
        **_behind_map(refresh=3, offset=0),
        of_width=partial(_behind_map, 3, 0),
        colour="#aa00ff",
        marker=(
            "M0.00,-1.10L0.35,-0.35L1.10,0.00L0.35,0.35L0.00,1.10L-0.35,0.35L-1.10,0.00"
            "L-0.35,-0.35Z"
        ),
        known_as={
            "ranpac": 'make_head("random_ridge", in_features, width=10_000, map="relu")',
            "acil": 'make_head("random_ridge", in_features, map="relu")',
            "gacl": 'make_head("random_ridge", in_features, map="relu")',
        },
    ),
    HeadCard(
        "random_slda",
        home="lastlayer.heads:RandomSldaHead",
        family="statistics",
        source="KLDA (arXiv 2412.15571), RanDumb (arXiv 2402.08823)",
        formula="φ·Λμ_i − ½ μ_iᵀΛμ_i, φ random and wide",
        use="the first choice with random_ridge, whatever the drift; every class weighs the same",
        plain="compares a sample with class averages, on thousands of combinations of the features",
        state="counts, means and one scatter of mapped features, the map, float64",
        abilities=Abilities(**_POOLED),
        version=2,
        **_behind_map(refresh=2, offset=1),
        of_width=partial(_behind_map, 2, 1),
        colour="#990066",
        marker="M0.00,-1.10L0.19,-0.11L0.95,0.55L0.00,0.22L-0.95,0.55L-0.19,-0.11Z",
        known_as={
            "klda": 'make_head("random_slda", in_features, width=5_000, map="fourier")',
            "randumb": 'make_head("random_slda", in_features, map="fourier")',
        },
    ),
    HeadCard(
        "qda",
        home="lastlayer.heads:QdaHead",
        family="statistics",
        source="quadratic discriminant analysis; FeCAM (arXiv 2309.14062)",
        formula="−½ (z − μ_i)ᵀΣ_i⁻¹(z − μ_i) − ½ log det Σ_i",
        use="few classes with many samples, each with a shape of its own",
        plain="compares a sample with each class by its average and by how its own samples scatter",
        state="counts, means and a scatter for each class, float64",
        size=lambda h, n_classes, n: 8 * n_classes * (h * h + h + 1),
        answer=lambda h, n_classes, n: float(h * h * n_classes),
        abilities=Abilities(leaves_out=True, **_ONE_PASS),
        refresh=lambda h, n_classes, n: 2 * n_classes * h**3,
        colour="#9977ff",
        marker="M0.00,-1.10L0.95,-0.55L0.95,0.55L0.00,1.10L-0.95,0.55L-0.95,-0.55Z",
        known_as={"fecam": 'make_head("qda", in_features)'},
    ),
    HeadCard(
        "sampled_linear",
        home="lastlayer.heads:SampledLinearHead",
        family="statistics",
        source="SLCA's classifier alignment (arXiv 2303.05118)",
        formula="z·A_i + b_i, trained on samples of class Gaussians",
        use="where you need an nn.Linear that does not forget; slow to refresh",
        plain="trains a linear layer on samples drawn from what is known of each class",
        state="counts, means and a scatter for each class, float64",
        size=lambda h, n_classes, n: 8 * n_classes * (h * h + h + 1),
        abilities=Abilities(linear=True, **_ONE_PASS),
        refresh=lambda h, n_classes, n: 6e6 * h * (h / 2 + 2 * n_classes),
        colour="#0000dd",
        marker=(
            "M0.00,-1.10L0.29,-0.40L1.05,-0.34L0.47,0.15L0.65,0.89L0.00,0.50L-0.65,0.89"
            "L-0.47,0.15L-1.05,-0.34L-0.29,-0.40Z"
        ),
        known_as={"slca": 'make_head("sampled_linear", in_features)'},
    ),
    HeadCard(
        "kernel_ridge",
        home="lastlayer.heads:KernelRidgeHead",
        family="neighbours",
        source="kernel ridge regression, a Gaussian kernel",
        formula="Σ_j α_ij k(z, z_j) + b_i, α = (K + λI)⁻¹(y − b)",
        use="the most accurate where rows may be kept, up to about 20,000",
        plain="keeps every sample; all of them vote, the nearer the more",
        state="every row and its label, float32; 4 bytes for each pair of rows while it answers",
        size=lambda h, n_classes, n: n * (4 * h + 8),
        abilities=Abilities(keeps_samples=True, leaves_out=True, **_ONE_PASS),
        answer=lambda h, n_classes, n: float((h + n_classes) * n),
        # One factor, and four decompositions of at most 2,000 rows at 9 m³.
        refresh=lambda h, n_classes, n: n**3 / 6 + 36 * min(n, 2000) ** 3,
        most_rows=22_915,
        colour="#ff4444",
        marker="M-.9,-.9L0,-.35L.9,-.9L.35,0L.9,.9L0,.35L-.9,.9L-.35,0Z",
    ),
)

_MASKED = {
    "single": "; a step changes the weights of the sample's own class only",
    "group": "; a step changes the weights of the classes in its batch only",
}

HEADS: Mapping[str, HeadCard] = {card.name: card for card in _CARDS}

PAPER_HEADS = (  # the paper's 19, whatever else there is
    "linear", "linear+single", "linear+group",
    "linear_no_bias", "linear_no_bias+single", "linear_no_bias+group",
    "weight_norm", "weight_norm+single", "weight_norm+group",
    "original_weight_norm", "original_weight_norm+single", "original_weight_norm+group",
    "cosine", "cosine+single", "cosine+group",
    "knn", "mean", "median", "slda",
)  # fmt: skip


def all_heads(rows: int = 0) -> tuple[str, ...]:
    """Return the name of every head with each of its masks, of those that take so many rows.

    >>> set(PAPER_HEADS) <= set(all_heads())
    True
    >>> "kernel_ridge" in all_heads(rows=1000), "kernel_ridge" in all_heads(rows=50_000)
    (True, False)
    """
    able = (card for card in HEADS.values() if card.most_rows is None or rows <= card.most_rows)
    return tuple(name for card in able for name in card.names)


def in_plain_words(name: str) -> str:
    """Return what a head with its mask does, in plain words; empty where its card says nothing.

    >>> in_plain_words("knn")
    'keeps every sample; the nearest ones vote'
    """
    head, mask = split_name(name)
    card = card_of(head)
    return card.plain and card.plain + _MASKED.get(mask, "")


def full_name(head: str, mask: str) -> str:
    """Return the name of a head with its mask, as it is typed.

    >>> full_name("cosine", "single"), full_name("slda", "none")
    ('cosine+single', 'slda')
    """
    return head if mask == "none" else f"{head}+{mask}"


def split_name(name: str, mask: str | None = None) -> tuple[str, str]:
    """Split "cosine+single" into ("cosine", "single"); without a mask it is "none".

    A width stays with the name: "random_slda@5000".
    """
    expect(name, str, "name", "the name of a head")
    base, plus, written = name.partition("+")
    card = _card(base)
    if plus and mask is not None and mask != written:
        raise OptionError(f"give one mask, got '{written}' in the name and mask='{mask}'")
    found = written if plus else (mask or "none")
    look_up(found, dict.fromkeys(MASKS), "mask")
    if found not in card.masks:
        raise OptionError(
            f"'{base}' takes no mask, since it is not trained by gradient, got '{found}'"
        )
    return base, found


def _explain(name: str) -> None:
    """Answer a name that other works use for a head with what to write here."""
    for card in HEADS.values():
        if name not in HEADS and name.lower() in card.known_as:
            write = card.known_as[name.lower()]
            raise UnknownNameError(
                f"unknown head '{name}'; it is called '{card.name}' here: write {write}"
            )


def card_of(name: str) -> HeadCard:
    """Return the card of a head, given its name with or without a mask, or with a width.

    >>> card_of("cosine+single").by_gradient, card_of("random_slda@5000").options
    (True, {'width': 5000})
    """
    return _card(split_name(name)[0])


def _card(name: str) -> HeadCard:
    """Return the card of a head without a mask; a width changes what it costs."""
    base, at, width = name.partition("@")
    _explain(base)
    card = look_up(base, HEADS, "head")
    if not at:
        return card
    if card.of_width is None:
        raise OptionError(f"'{base}' has no width, got '{name}'")
    if not (width.isascii() and width.isdecimal() and 0 < int(width) <= MOST_WIDTH):
        raise OptionError(
            f"the width of '{base}' must be a number from 1 to {MOST_WIDTH}, as in {base}@5000, "
            f"got '{width}'"
        )
    return replace(card, name=name, **card.of_width(int(width)))


def base_name(name: str) -> str:
    """Return the name of a head without its mask and its width, whether it has a card or not.

    >>> base_name("random_slda@5000"), base_name("cosine+single")
    ('random_slda', 'cosine')
    """
    return name.partition("+")[0].partition("@")[0]


def thrift(head: str) -> tuple[bool, bool, bool, int]:
    """Return a sort key for equally good heads: those that keep and compute less come first.

    A head without a card comes last.

    >>> sorted(["new", "knn", "cosine+single", "median", "slda", "mean"], key=thrift)
    ['mean', 'slda', 'cosine+single', 'median', 'knn', 'new']
    """
    base = base_name(head)
    if base not in HEADS:
        return True, True, True, len(HEADS)
    card, place = HEADS[base], list(HEADS).index(base)
    return card.abilities.keeps_samples, card.by_gradient, not card.abilities.linear, place


def size_in_words(size: float) -> str:
    """Write a number of bytes as one would say it.

    >>> size_in_words(999), size_in_words(38_480), size_in_words(23_160_000)
    ('999 B', '38 kB', '23 MB')
    """
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {word}" if size < 10 * unit else f"{size / unit:.0f} {word}"
    return f"{size:.0f} B"


def able(ability: str) -> list[str]:
    """Return the heads with an ability by default, for errors that say what to use instead.

    >>> able("forgets_class")
    ['knn', 'mean', 'median', 'qda', 'sampled_linear', 'kernel_ridge']
    """
    look_up(ability, {f.name: f for f in fields(Abilities)}, "ability")
    return [name for name, card in HEADS.items() if getattr(card.abilities, ability)]
