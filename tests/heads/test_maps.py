"""Feature maps, and heads behind them: against scikit-learn, RanPAC's recursion, and by law."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from streams import assert_same_bits, snapshot
from torch import Tensor

from lastlayer.catalogue.head_cards import HEADS, card_of, thrift
from lastlayer.catalogue.map_widths import all_products
from lastlayer.errors import (
    ArgumentError,
    DataError,
    MergeError,
    OptionError,
    UnknownNameError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import load_head, make_head, make_map
from lastlayer.heads.changes import merge
from lastlayer.heads.maps.feature_map import MAPS, ROWS
from lastlayer.heads.maps.mapped_head import MappedHead

H, WIDTH = 5, 60
RANDOM = ("random_ridge", "random_slda")
every_map = pytest.mark.parametrize("kind", MAPS)
every_random_head = pytest.mark.parametrize("name", RANDOM)


def draw(n: int, seed: int = 0, n_classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=generator)
    centres = 2 * torch.randn(n_classes, H, generator=torch.Generator().manual_seed(99))
    return centres[y] + torch.randn(n, H, generator=generator), y


def random_head(name: str, **options: object) -> MappedHead:
    head = make_head(name, H, **{"width": WIDTH, **options})
    assert isinstance(head, MappedHead)
    return head


@every_map
def test_a_map_is_what_it_says(kind: str) -> None:
    z, _ = draw(50)
    feature_map = make_map(kind, H, WIDTH, seed=3).fit(z)
    rows, projection = z.double().numpy(), feature_map.projection.numpy()
    if kind == "relu":
        expected = np.maximum((rows - rows.mean(0)) / rows.std(0) @ projection.T, 0)
    elif kind == "quadratic":
        u = (rows - rows.mean(0)) / rows.std(0) / np.sqrt(H)
        products = (u @ projection.T) * (u @ feature_map.second.numpy().T)
        expected = np.hstack([np.sqrt(2) * u, products / np.sqrt(WIDTH - H)])
    else:
        distances = [np.linalg.norm(a - b) for i, a in enumerate(rows) for b in rows[:i]]
        bandwidth = sorted(distances)[(len(distances) - 1) // 2]
        angle = (rows - rows.mean(0)) / bandwidth @ projection.T + feature_map.offset.numpy()
        expected = np.cos(angle)
    np.testing.assert_allclose(feature_map(z).numpy(), expected, rtol=1e-10, atol=1e-12)
    assert abs(projection.mean()) < 0.2
    assert abs(projection.std() - 1) < 0.2


@every_map
def test_a_map_follows_from_its_seed(kind: str) -> None:
    torch.manual_seed(1)
    one, same, other = (make_map(kind, H, WIDTH, seed) for seed in (0, 0, 1))
    assert_same_bits(one.state_dict(), same.state_dict())
    assert not torch.equal(one.projection, other.projection)
    assert float(make_map("relu", 2, 2).projection[0, 0]) == pytest.approx(0.1257302210933933)


@settings(max_examples=20, deadline=None)
@given(ends=st.sets(st.integers(1, ROWS + 200), max_size=5), name=st.sampled_from(RANDOM))
def test_batches_do_not_matter_to_the_map(ends: set[int], name: str) -> None:
    z, y = draw(ROWS + 200)
    at_once, in_parts = random_head(name), random_head(name)
    at_once.observe(z, y)
    for rows in np.split(np.arange(len(y)), sorted(ends)):
        in_parts.observe(z[rows], y[rows])
        if len(rows):
            in_parts.predict(z[:3])  # a provisional answer changes nothing
    assert at_once.map.alike(in_parts.map)
    assert at_once.map.alike(make_map(at_once.map.name, H, WIDTH).fit(z[:ROWS]))
    torch.testing.assert_close(in_parts(z[:50]), at_once(z[:50]), rtol=1e-9, atol=1e-9)
    assert len(at_once.first) == len(in_parts.first) == 0


@every_random_head
def test_a_provisional_answer_is_that_of_a_map_of_the_rows_so_far(name: str) -> None:
    z, y = draw(300)
    head = random_head(name)
    head.observe(z, y)
    given_map = make_map(head.options["map"], H, WIDTH).fit(z)
    fixed = random_head(name, like=given_map)
    fixed.observe(z, y)
    assert not head.map.fitted
    torch.testing.assert_close(head(z), fixed(z), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", MAPS)
def test_random_ridge_is_scikit_learns_behind_the_map(kind: str) -> None:
    z, y = draw(ROWS + 500)
    queries, _ = draw(100, seed=1)
    head = random_head("random_ridge", map=kind, penalty=0.01)
    head.observe(z, y)
    phi = head.map(z).numpy()
    alpha = 0.01 * np.square(phi - phi.mean(0)).sum() / WIDTH
    ridge = Ridge(alpha=alpha, solver="cholesky").fit(phi, np.eye(4)[y])
    np.testing.assert_allclose(
        head(queries), ridge.predict(head.map(queries).numpy()), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("kind", MAPS)
def test_random_slda_is_scikit_learns_behind_the_map(kind: str) -> None:
    z, y = draw(ROWS + 500)
    queries, _ = draw(100, seed=1)
    head = random_head("random_slda", map=kind, shrinkage=0.1, prior="empirical")
    head.observe(z, y)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(head.map(z).numpy(), y)
    got, expected = (
        logits - logits.mean(axis=1, keepdims=True)
        for logits in (head(queries).numpy(), lda.decision_function(head.map(queries).numpy()))
    )
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_it_is_ranpacs_recursion_but_for_the_intercept() -> None:
    """G ← G + HᵀH, Q ← Q + HᵀY, W = (G + λI)⁻¹Q, task by task, with a column of ones unpenalised.

    RanPAC has no intercept; least squares with one is the same on features and targets measured
    from their means, so a large constant feature, whose weight is hardly penalised, stands for it.
    """
    z, y = draw(ROWS + 800)
    queries, _ = draw(200, seed=1)
    head = random_head("random_ridge", penalty=0.01)
    gram, cross = np.zeros((WIDTH + 1, WIDTH + 1)), np.zeros((WIDTH + 1, 4))
    for rows in np.split(np.arange(len(y)), [ROWS, ROWS + 300]):
        head.observe(z[rows], y[rows])
        mapped = head.map(z[rows]).numpy()
        hidden = np.concatenate([mapped, np.full((len(rows), 1), 1e4)], axis=1)
        gram += hidden.T @ hidden
        cross += hidden.T @ np.eye(4)[y[rows]]
    head(queries)
    weight = np.linalg.solve(gram + head.inner.penalty * np.eye(WIDTH + 1), cross)
    expected = head.map(queries).numpy() @ weight[:-1] + 1e4 * weight[-1]
    np.testing.assert_allclose(head(queries), expected, rtol=1e-4, atol=1e-5)


@every_random_head
def test_a_class_that_returns_in_another_domain_is_as_seen_at_once(name: str) -> None:
    z, y = draw(2 * ROWS)
    shifted = z + 3.0  # every class returns elsewhere
    in_turn, at_once = random_head(name), random_head(name)
    in_turn.observe(z, y)
    in_turn.observe(shifted, y)
    at_once.observe(torch.cat([z, shifted]), torch.cat([y, y]))
    phi = in_turn.map(torch.cat([z, shifted]))
    labels = torch.cat([y, y])
    centred = phi - torch.stack([phi[labels == c].mean(0) for c in range(4)])[labels]
    for head in (in_turn, at_once):
        scatter = head.inner.statistics.pooled_scatter()
        torch.testing.assert_close(scatter, centred.mT @ centred, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(in_turn(z), at_once(z), rtol=1e-8, atol=1e-8)


@every_random_head
@pytest.mark.parametrize("sizes", [(40, 50), (700, 600), (ROWS, 10), (10, ROWS + 50), (0, 30)])
def test_merging_equals_the_union(name: str, sizes: tuple[int, int]) -> None:
    z, y = draw(sum(sizes))
    left, right, union = (random_head(name) for _ in range(3))
    union.observe(z, y)
    left.observe(z[: sizes[0]], y[: sizes[0]])
    right.observe(z[sizes[0] :], y[sizes[0] :])
    if right.map.fitted:  # then its map is the given one
        union = random_head(name, like=right)
        union.observe(z, y)
    before = snapshot(left), snapshot(right)
    merged = left.merge(right)
    torch.testing.assert_close(merged(z), union(z), rtol=1e-8, atol=1e-8)
    assert_same_bits(snapshot(left), before[0])
    assert_same_bits(snapshot(right), before[1])


@every_random_head
def test_maps_that_read_columns_in_another_order_are_not_merged(name: str) -> None:
    z, y = draw(90)
    one, other = random_head(name, rows="unit"), random_head(name, rows="unit")
    one.observe(z, y)
    other.observe(z.flip(1), y)
    with pytest.raises(MergeError, match="but theirs read columns in another order: fit the sec"):
        merge(one, other, torch.arange(H).flip(0))


@every_random_head
def test_heads_with_different_maps_are_not_merged(name: str) -> None:
    z, y = draw(2 * ROWS)
    left, right = random_head(name), random_head(name)
    left.observe(z[:ROWS], y[:ROWS])
    right.observe(z[ROWS:], y[ROWS:])
    with pytest.raises(MergeError, match=r"same map.*different first rows.*fit --like HEAD"):
        left.merge(right)
    right = random_head(name, like=left)
    right.observe(z[ROWS:], y[ROWS:])
    union = random_head(name)
    union.observe(z, y)
    torch.testing.assert_close(left.merge(right)(z), union(z), rtol=1e-8, atol=1e-8)


@every_random_head
def test_forgetting_keeps_the_map(name: str) -> None:
    z, y = draw(ROWS + 300)
    head = random_head(name)
    head.observe(z, y)
    rest = random_head(name, like=head)
    rest.observe(z[200:], y[200:])
    head.forget(z[:200], y[:200])
    torch.testing.assert_close(head(z), rest(z), rtol=1e-7, atol=1e-7)
    assert head.map.alike(rest.map)
    before = snapshot(head)
    with pytest.raises(DataError, match="cannot forget"):
        head.forget(z.repeat(5, 1), y.repeat(5))  # several pieces, of which the first could go
    assert_same_bits(snapshot(head), before)


@every_random_head
def test_a_fixed_map_is_saved_with_the_head(name: str, tmp_path: object) -> None:
    z, y = draw(ROWS + 5)
    head = random_head(name, seed=7)
    head.observe(z, y)
    head.save(f"{tmp_path}/head")
    loaded = load_head(f"{tmp_path}/head")
    assert isinstance(loaded, MappedHead)
    assert loaded.map.alike(head.map)
    assert torch.equal(loaded(z), head(z))
    assert torch.equal(copy.deepcopy(head).merge(loaded)(z), head.merge(head)(z))


def test_like_takes_over_all_of_the_map() -> None:
    z, y = draw(ROWS)
    head = random_head("random_slda", map="relu", seed=5, width=30)
    with pytest.raises(OptionError, match="fixed, got one that waits for its first 1000 rows"):
        random_head("random_ridge", like=head)
    head.observe(z, y)
    other = random_head("random_ridge", like=head)
    assert other.map.alike(head.map)
    assert (other.options["width"], other.options["map"], other.options["seed"]) == (30, "relu", 5)
    assert "like" not in other.settings
    with pytest.raises(OptionError, match="a map of 6 features, got one of 5"):
        make_head("random_ridge", H + 1, like=head)
    with pytest.raises(OptionError, match="like must be a head with a map, or a map, got a str"):
        make_head("random_ridge", H, like="relu")


@every_random_head
def test_impossible_widths_are_refused(name: str) -> None:
    for width in (0, -3):
        with pytest.raises(OptionError, match=f"a width must be at least 1, got {width}"):
            make_head(name, H, width=width)
    with pytest.raises(ArgumentError, match="a width must be an integer, got a float"):
        make_head(name, H, width=2.5)
    with pytest.raises(OptionError, match=r"take 2.1 GB, but width 100000 .* need 80 GB"):
        make_head(name, H, width=100_000)
    with pytest.raises(UnknownNameError, match="did you mean 'relu'"):
        make_head(name, H, map="rleu")
    with pytest.raises(OptionError, match="seed"):
        make_head(name, H, seed=-1)


@every_random_head
@pytest.mark.parametrize("kind", MAPS)
def test_limit_cases_are_answered(name: str, kind: str) -> None:
    """One class, one row, constant features, fewer samples than classes: never NaN."""
    z, _ = draw(30)
    one = random_head(name, map=kind, n_classes=50)
    one.observe(z[:1], torch.tensor([49]))
    assert one.predict(z).tolist() == [49] * 30
    constant = random_head(name, map=kind)
    constant.observe(torch.ones(6, H), torch.arange(6))
    assert constant(z).isfinite().all()
    partly = z.clone()
    partly[:, 2] = 7.5
    head = random_head(name, map=kind)
    head.observe(partly, torch.arange(30) % 3)
    assert head(z).isfinite().all()


@every_random_head
def test_first_rows_that_are_all_the_same_are_refused(name: str) -> None:
    head = random_head(name)
    head.observe(torch.ones(ROWS - 1, H), torch.zeros(ROWS - 1, dtype=torch.int64))
    before = snapshot(head)
    with pytest.raises(DataError, match=r"first rows must differ.*1000 that are all the same"):
        head.observe(torch.ones(1, H), torch.tensor([0]))
    assert_same_bits(snapshot(head), before)
    head.observe(torch.zeros(2, H), torch.tensor([1, 1]))
    assert head.map.fitted
    assert head.predict(torch.tensor([[0.0] * H, [1.0] * H])).tolist() == [1, 0]


def test_a_narrower_head_loses_nothing() -> None:
    z, y = draw(60)
    head, same = random_head("random_ridge"), random_head("random_ridge")
    for one in (head, same):
        one.observe(z.double() / 3, y)
    assert torch.equal(head.float()(z), same(z))


@pytest.mark.parametrize(
    ("known", "card"),
    [(known, card) for card in HEADS.values() for known in card.known_as],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_the_names_of_other_works_lead_here(known: str, card: object) -> None:
    for written in (known, known.upper()):
        with pytest.raises(
            UnknownNameError, match=rf"it is called '{card.name}' here: write make_head"
        ):
            make_head(written, H)
    example = card.known_as[known].replace("in_features", str(H)).replace("10_000", "50")
    assert eval(example, {"make_head": make_head}).name == card.name


def test_all_asked_for_names_are_known() -> None:
    known = {name for card in HEADS.values() for name in card.known_as}
    assert {"ranpac", "klda", "randumb", "acil"} <= known


@every_random_head
def test_the_budget_holds_to_the_byte(name: str) -> None:
    needed = 8 * (WIDTH * WIDTH + 7 * (WIDTH + 1) + WIDTH * H)
    assert make_head(name, H, 7, width=WIDTH, budget=needed).n_classes == 7
    with pytest.raises(OptionError, match="width 60 and 7 classes"):
        make_head(name, H, 7, width=WIDTH, budget=needed - 1)


def unit(z: Tensor) -> Tensor:
    return z.double() / z.double().norm(dim=1, keepdim=True)


def test_all_products_are_the_polynomial_kernel_of_degree_two() -> None:
    z, _ = draw(30)
    feature_map = make_map("quadratic", H, all_products(H), rows="unit")
    assert feature_map.width == 20
    assert not feature_map.projection.numel()
    phi = feature_map(z)
    expected = polynomial_kernel(unit(z).numpy(), degree=2, gamma=1.0, coef0=1.0) - 1
    np.testing.assert_allclose((phi @ phi.mT).numpy(), expected, atol=1e-12)


def test_random_products_are_that_kernel_on_average() -> None:
    z, _ = draw(8)
    expected = polynomial_kernel(unit(z).numpy(), degree=2, gamma=1.0, coef0=1.0) - 1
    maps = (make_map("quadratic", H, 2000, seed, rows="unit") for seed in range(40))
    found = torch.stack([(phi := one(z)) @ phi.mT for one in maps]).mean(dim=0)
    np.testing.assert_allclose(found.numpy(), expected, atol=0.05)


def test_fourier_features_of_unit_rows_are_a_gaussian_kernel_of_bandwidth_root_two() -> None:
    z, _ = draw(8)
    phi = make_map("fourier", H, 200_000, rows="unit")(z)
    expected = rbf_kernel(unit(z).numpy(), gamma=0.25)
    np.testing.assert_allclose((2 * phi @ phi.mT / 200_000).numpy(), expected, atol=0.02)


@every_map
@every_random_head
def test_a_map_of_unit_rows_depends_on_no_row(name: str, kind: str) -> None:
    """No rows wait for it, lengths do not matter, and heads that learned apart are merged."""
    z, y = draw(90)
    head, apart, last = (random_head(name, map=kind, rows="unit", seed=2) for _ in range(3))
    assert head.rows_to_begin == 0
    head.observe(z, y)
    longer = torch.linspace(0.1, 9, 90)[:, None] * z.double()
    apart.observe(longer[50:], y[50:])
    last.observe(longer[:50], y[:50])
    queries, _ = draw(20, seed=5)
    expected = head(queries)
    torch.testing.assert_close(last.merge(apart)(queries), expected, rtol=0, atol=1e-8)
    head.observe(-z[:7], y[:7])
    head.forget(-z[:7], y[:7])
    torch.testing.assert_close(head(queries), expected, rtol=0, atol=1e-8)
    assert "depends on no row" in head.proof
    label, *_ = head.as_module(dtype=torch.float64)(queries.double())
    assert torch.equal(label, head.predict(queries))


@every_map
def test_heads_of_unit_rows_go_on_from_a_file(kind: str, tmp_path: Path) -> None:
    z, y = draw(60)
    head = random_head("random_ridge", map=kind, rows="unit")
    head.observe(z, y)
    head.save(tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.settings == head.settings
    assert torch.equal(loaded(z), head(z))
    taken = random_head("random_slda", like=head)
    assert taken.settings["rows"] == "unit"
    assert taken.map.alike(head.map)


def test_settings_of_rows_as_they_are_stay_those_of_0_2() -> None:
    assert "rows" not in random_head("random_ridge").settings
    assert "first 1000 rows" in random_head("random_ridge").proof


def test_a_quadratic_map_is_wider_than_its_features() -> None:
    with pytest.raises(OptionError, match="width must be above the 5 features"):
        random_head("random_ridge", map="quadratic", width=5)
    with pytest.raises(OptionError, match="rows must be 'as_is' or 'unit'"):
        random_head("random_ridge", rows="long")


@pytest.mark.parametrize(
    ("h", "options", "expected"),
    [
        (30, {}, ("old", "as_is", 2000)),
        (63, {"map": "quadratic"}, ("quadratic", "as_is", 63 + 63 * 64 // 2)),
        (64, {}, ("quadratic", "unit", all_products(64))),
        (100, {}, ("quadratic", "unit", 2180)),
        (100, {"width": 101}, ("quadratic", "unit", 101)),
        (100, {"width": 100}, ("old", "as_is", 100)),
        (100, {"rows": "as_is"}, ("old", "as_is", 2000)),
        (64, {"width": 2145}, ("fourier", "unit", 2145)),
        (100, {"map": "fourier"}, ("fourier", "as_is", 2000)),
        (100, {"map": "fourier", "rows": "unit"}, ("fourier", "unit", 2000)),
        (100, {"map": "quadratic", "rows": "as_is"}, ("quadratic", "as_is", 2180)),
    ],
)  # fmt: skip
@every_random_head
def test_what_is_auto_follows_from_the_number_of_features(
    name: str, h: int, options: dict[str, Any], expected: tuple[str, str, int]
) -> None:
    head = make_head(name, h, **options)
    assert isinstance(head, MappedHead)
    kind, rows, width = expected
    kind = {"random_ridge": "relu", "random_slda": "fourier"}[name] if kind == "old" else kind
    assert (head.map.name, head.map.rows, head.map.width) == (kind, rows, width)
    assert head.settings["width"] == width
    again = make_head(name, **head.settings)
    assert again.settings == head.settings
    assert again.feature_map is not None
    assert again.feature_map.alike(head.map)


@pytest.mark.parametrize("name", RANDOM)
def test_the_default_head_of_many_features_is_exact_from_its_first_row(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(60, 64, generator=generator, dtype=torch.float64) + 2
    y = torch.arange(60) % 3
    z[:, 5] += y
    head, other, whole = (make_head(name, 64) for _ in range(3))
    whole.observe(z, y)
    head.observe(z[30:], y[30:])
    other.observe(1e-8 * z[:30], y[:30])
    expected = whole(z)
    torch.testing.assert_close(head.merge(other)(1e8 * z), expected, rtol=0, atol=1e-7)
    assert head.rows_to_begin == 0
    strange = torch.stack([torch.zeros(64), 1e30 * torch.ones(64)]).double()
    assert head(strange).isfinite().all()


@every_random_head
def test_a_head_may_be_named_with_its_width(name: str, tmp_path: Path) -> None:
    z, y = draw(40)
    head, same = make_head(f"{name}@30", H), make_head(name, H, width=30)
    assert head.settings == same.settings
    assert make_head(f"{name}@30", H, width=20).settings["width"] == 20
    classifier = HeadClassifier(f"{name}@30").fit(z.numpy(), y.numpy())
    classifier.save(tmp_path / "head")
    loaded = HeadClassifier.load(tmp_path / "head")
    assert np.array_equal(loaded.predict(z.numpy()), classifier.predict(z.numpy()))
    assert load_head(tmp_path / "head").settings["width"] == 30
    card, default = card_of(f"{name}@5000"), card_of(name)
    assert card.size(384, 10, 0) > 2 * default.size(384, 10, 0)
    assert card.refresh(384, 10, 0) > 8 * default.refresh(384, 10, 0)
    assert thrift(f"{name}@5000") == thrift(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("slda@30", "'slda' has no width, got 'slda@30'"),
        ("random_slda@", "must be a number from 1 to 1000000, as in random_slda@5000, got ''"),
        ("random_slda@0", "must be a number from 1"),
        ("random_slda@-3", "must be a number from 1"),
        ("random_slda@30+group", "'random_slda@30' takes no mask"),
    ],
)
def test_a_width_in_a_name_is_a_number_of_a_head_that_has_one(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_head(name, H)


@every_random_head
@pytest.mark.parametrize("gone", [slice(0, 300), slice(700, 730)])
def test_a_map_of_unit_rows_keeps_nothing_of_rows_that_are_forgotten(
    name: str, gone: slice
) -> None:
    z, y = draw(1300)
    z[:300] *= 2  # the first rows are longer than the others
    stays = torch.ones(len(y), dtype=torch.bool)
    stays[gone] = False
    change = {}
    for rows in ("unit", "as_is"):
        head, rest = (random_head(name, rows=rows) for _ in range(2))
        head.observe(z, y)
        head.forget(z[gone], y[gone])
        rest.observe(z[stays], y[stays])
        change[rows] = float((head.probabilities(z) - rest.probabilities(z)).abs().max())
        assert ("depends on no row" in head.proof) == (rows == "unit")
    assert change["unit"] < 1e-9
    assert change["as_is"] > 1e-4  # its scale is still that of the first rows
