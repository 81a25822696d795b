"""Leave-one-out answers equal those of heads that are refitted without the row, one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from streams import H, blobs, every_head, make_head, trained
from torch import Tensor

from lastlayer.catalogue.head_cards import able
from lastlayer.errors import DataError, LabelError, LastLayerError, OptionError, UnsupportedError
from lastlayer.heads import Head
from lastlayer.heads.statistics import covariance, gaussians

PHASES = (Phase.explicit, Phase.generate)  # a failing case is not worth the time to make it small
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("mean", {}), ("mean", {"preset": "paper"}),
    ("slda", {}), ("slda", {"shrinkage": 0.3, "prior": "empirical"}), ("slda", {"shrinkage": 1.0}),
    ("slda", {"shrinkage": 0.0}), ("slda", {"per_class_scatter": True}),
    ("ridge", {}), ("ridge", {"penalty": 0.01}), ("ridge", {"per_class_scatter": True}),
    ("qda", {}), ("qda", {"nu": 3.0, "prior": "empirical"}), ("qda", {"diagonal": True}),
    ("knn", {}), ("knn", {"k": 1}),
    ("random_ridge", {}), ("random_slda", {}), ("random_slda", {"map": "relu"}),
    ("random_ridge", {"map": "quadratic", "rows": "unit", "width": 12}),
    ("random_slda", {"map": "quadratic", "rows": "unit", "width": 12}),
    ("kernel_ridge", {"bandwidth": 1.5, "penalty": 0.1}),
]  # fmt: skip


def draw(seed: int, n: int = 40, h: int = 3, n_classes: int = 3) -> tuple[Tensor, Tensor]:
    """Give rows of classes that overlap: some are copies, and one with another label."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=generator)
    y[: 2 * n_classes] = torch.arange(n_classes).repeat(2)
    z = torch.randn(n, h, generator=generator, dtype=torch.float64) + y[:, None]
    z[-4:-2], y[-4:-2] = z[0], y[0]
    z[-1] = z[1]
    return z, y


@contextmanager
def as_before(whole: Head, z: Tensor) -> Iterator[None]:
    """Let heads shrink as much as this one does."""
    behind = whole.behind_map
    statistics = getattr(behind, "statistics", None)
    original, diagonal = covariance.oas, gaussians.diagonal_intensity
    if statistics is not None and getattr(statistics, "kind", "") in ("pooled", "per_class"):
        found = original(statistics.pooled_scatter() / statistics.total, statistics.total)
        covariance.oas = lambda *_: found
    gaussians.diagonal_intensity = lambda _: diagonal(len(z))
    try:
        yield
    finally:
        covariance.oas, gaussians.diagonal_intensity = original, diagonal


def refitted(name: str, options: dict[str, Any], whole: Head, z: Tensor, y: Tensor) -> Head:
    """Fit a head as ``whole`` was, with its penalty in absolute terms and its map."""
    options = dict(options)
    if whole.feature_map is not None:
        options["like"] = whole.feature_map
    if name.endswith("ridge"):
        whole.predict(z)
        options["penalty"] = 1.0
        one = make_head(name, z.shape[1], whole.n_classes, **options)
        one.observe(z, y)
        one.predict(z)
        options["penalty"] = whole.behind_map.penalty / one.behind_map.penalty
    head = make_head(name, z.shape[1], whole.n_classes, **options)
    head.observe(z, y)
    return head


def one_by_one(name: str, options: dict[str, Any], whole: Head, z: Tensor, y: Tensor) -> Tensor:
    """Answer each row by a head that has learned neither it nor its copies."""
    answers = []
    with as_before(whole, z):
        for row, label in zip(z, y, strict=True):
            others = (z != row).any(dim=1) | (y != label)
            head = refitted(name, options, whole, z[others], y[others])
            answers.append(head(row[None]).double())
    return torch.cat(answers)


def leverage_left(head: Head, z: Tensor, y: Tensor) -> Tensor:
    """Return 1 − leverage (n, 1) by the ridge with the smallest penalty, a bound for all."""
    ones = torch.ones(len(z), 1, dtype=torch.float64)
    design = torch.cat([ones, z, torch.eye(head.n_classes, dtype=torch.float64)[y][:, 1:]], dim=1)
    hat = design @ torch.linalg.pinv(design)
    return (1 - 3 * hat.diagonal()).clamp(min=1e-3)[:, None]  # of three copies


def check(name: str, options: dict[str, Any], z: Tensor, y: Tensor) -> None:
    head = make_head(name, z.shape[1], int(y.max()) + 1, **options)
    if head.rows_to_begin:
        head = head.fresh(head.n_classes, first=torch.cat([z] * (1000 // len(z) + 1)))
    head.observe(z, y)
    got, expected = head.leave_one_out(z, y), one_by_one(name, options, head, z, y)
    assert torch.equal(got == -torch.inf, expected == -torch.inf)
    finite = expected.isfinite()
    scale = expected[finite].abs().max() or 1.0
    wrong = ((got - expected).abs() * leverage_left(head, z, y))[finite] / scale
    assert float(wrong.max()) < 1e-9


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_it_equals_refitting_without_the_row_and_its_copies(
    name: str, options: dict[str, Any]
) -> None:
    check(name, options, *draw(seed=0))


@pytest.mark.parametrize("name", ["mean", "slda", "ridge", "qda", "knn"])
@settings(max_examples=5, deadline=None, phases=PHASES)
@given(
    n=st.integers(8, 24), h=st.integers(1, 12), n_classes=st.integers(1, 4),
    offset=st.sampled_from([0.0, 100.0]), scale=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_whatever_the_data(
    name: str, n: int, h: int, n_classes: int, offset: float, scale: float, seed: int
) -> None:
    """Fewer rows than features and more, one class, features far from zero, large and small."""
    z, y = draw(seed, n, h, n_classes)
    check(name, {}, scale * (z + offset), y)


def test_a_class_of_one_row_and_its_copies_has_no_answer() -> None:
    z, y = draw(seed=1)
    z, y = torch.cat([z, z[:1] + 9, z[:1] + 9]), torch.cat([y, torch.tensor([3, 3])])
    for name in able("leaves_out"):
        head = make_head(name, 3)
        head.observe(z, y)
        logits = head.leave_one_out(z, y)
        assert (logits[-2:, 3] == -torch.inf).all(), name
        assert logits[-2:, :3].amax(dim=1).isfinite().all(), name
        if name != "knn":  # whose neighbours need not be of every class
            assert logits[:-2].isfinite().all(), name


def test_rows_may_come_in_pieces_with_how_often_each_was_learned() -> None:
    z, y = draw(seed=2)
    copies = ((z[:, None] == z).all(dim=2) & (y[:, None] == y)).sum(dim=1)
    for name in able("leaves_out"):
        head = make_head(name, 3)
        head.observe(z, y)
        whole = head.leave_one_out(z, y)
        parts = [t.split(7) for t in (z, y, copies)]
        pieces = [head.leave_one_out(*part) for part in zip(*parts, strict=True)]
        torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-9, atol=1e-9)


@every_head
def test_every_head_leaves_rows_out_or_says_why_not(name: str, preset: str) -> None:
    z, y = blobs()
    head = trained(name, preset)
    if head.abilities.leaves_out:
        logits = head.leave_one_out(z, y)
        assert logits.shape == (len(z), 3)
        assert (logits.argmax(dim=1) == y).double().mean() > 0.9
        assert head.leave_one_out(z[:0], y[:0]).shape == (0, 3)
    else:
        with pytest.raises(UnsupportedError, match=r"cannot leave its rows out.*these heads can: "):
            head.leave_one_out(z, y)


def test_what_fades_or_weighs_classes_alike_refuses() -> None:
    z, y = blobs()
    refused = {
        ("slda", "half_life"): 10.0, ("mean", "half_life"): 10.0, ("ridge", "half_life"): 10.0,
        ("ridge", "weigh"): "classes", ("random_ridge", "weigh"): "classes", ("knn", "budget"): 5,
    }  # fmt: skip
    for (name, option), value in refused.items():
        head = make_head(name, H, **{option: value})
        head.observe(z, y)
        with pytest.raises(UnsupportedError, match="cannot leave its rows out"):
            head.leave_one_out(z, y)


def test_rows_that_were_not_learned_are_refused() -> None:
    z, y = blobs()
    for name in ("slda", "knn"):
        head = make_head(name, H)
        head.observe(z, y)
        head.observe(z[:1], torch.tensor([3]))
        cases: list[tuple[type[LastLayerError], Tensor, Tensor, Any]] = [
            (DataError, z[[0, 0]], torch.tensor([3, 3]), None),  # more of a class than there are
            (DataError, z[:1], torch.tensor([3]), torch.tensor([2])),
            (DataError, z[:1], torch.tensor([7]), None),
            (LabelError, z[:1], torch.tensor([-1]), None),
            (OptionError, z[:1], y[:1], torch.tensor([0])),
        ]
        for error, rows, labels, copies in cases:
            with pytest.raises(error):
                head.leave_one_out(rows.float(), labels, copies)
    with pytest.raises(DataError, match="row 0 was not"):
        head.leave_one_out(z[:1] + 1, y[:1])


def test_all_that_was_learned_cannot_be_left_out() -> None:
    for name in able("leaves_out"):
        head = make_head(name, 2)
        head.observe(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64))
        with pytest.raises(DataError, match="all that was learned"):
            head.leave_one_out(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64))


def test_a_row_alone_in_its_direction_is_refused_without_a_penalty() -> None:
    z = torch.cat([torch.randn(20, 1, dtype=torch.float64), torch.zeros(20, 1)], dim=1)
    z[0, 1] = 1.0
    y = torch.arange(20) % 2
    head = make_head("ridge", 2, penalty=0.0)
    head.observe(z, y)
    with pytest.raises(DataError, match="alone varies in a direction"):
        head.leave_one_out(z, y)


def test_it_changes_nothing() -> None:
    z, y = blobs()
    for name in able("leaves_out"):
        head = trained(name, "exact")
        before = head(z)
        head.leave_one_out(z, y)
        assert torch.equal(head(z), before)
