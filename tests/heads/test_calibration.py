"""Calibration: temperatures against a plain search, limits against the beta law, and bad input."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.covariance import OAS
from sklearn.neighbors import NearestNeighbors
from streams import H, batches, blobs, every_head, make_head, trained
from torch import Tensor

import lastlayer as ll
from lastlayer.errors import (
    ArgumentError,
    CalibrationWarning,
    DataError,
    FileFormatError,
    LabelError,
    LastLayerError,
    NotCalibratedError,
    NotLearnedError,
    OptionError,
)
from lastlayer.heads.calibration import Calibration, fit_temperature
from sizes import Sizes

SPLITS = 100


@pytest.mark.parametrize("name", ["mean", "slda", "knn"])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.1])
def test_the_share_turned_away_follows_the_beta_law(name: str, share: float) -> None:
    """Of rows that are like those of the calibration: of a test set, in 100 random splits."""
    data = ll.load_features("cifar10")
    head = ll.make_head(name, 64)
    some = torch.arange(len(data.train)) % 5 == 0
    head.observe(data.train.z[some], data.train.y[some])
    novelty, n = head.novelty(data.test.z), 1000
    turned_away = []
    for seed in range(SPLITS):
        order = torch.randperm(len(novelty), generator=torch.Generator().manual_seed(seed))
        limit = Calibration.of(1.0, novelty[order[:n]]).limit(share)
        turned_away.append((novelty[order[n:]] > limit).double().mean().item())
    m, rest = math.floor((n + 1) * share), len(novelty) - n
    law = stats.betabinom(rest, m, n + 1 - m)  # the beta law, seen through as many inputs
    mean, deviation = law.mean() / rest, law.std() / rest
    assert mean <= share
    assert np.mean(turned_away) <= share + 3 * deviation / math.sqrt(SPLITS)
    assert abs(np.mean(turned_away) - mean) < 4 * deviation / math.sqrt(SPLITS)
    # The deviation of 100 draws is itself within a quarter of the law's, all but surely.
    assert 0.75 < np.std(turned_away, ddof=1) / deviation < 1.3
    assert stats.kstest(turned_away, stats.beta(m, n + 1 - m).cdf).pvalue > 1e-4


@given(
    n=st.integers(1, 3000),
    share=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**31),
    ties=st.booleans(),
)
def test_no_limit_lets_more_through_than_was_asked(
    n: int, share: float, seed: int, ties: bool
) -> None:
    novelty = torch.from_numpy(np.random.default_rng(seed).normal(size=n))
    novelty = novelty.round(decimals=1) if ties else novelty
    calibration = Calibration.of(1.0, novelty)
    assert len(calibration.ranks) <= 2000
    assert Calibration.read(calibration.document()) == calibration
    m = math.floor((n + 1) * Fraction(repr(share)))
    if m < 1:
        with pytest.raises(OptionError, match="calibration rows, got"):
            calibration.limit(share)
        return
    limit = calibration.limit(share)
    exact = float(novelty.sort(descending=True).values[m - 1])
    assert limit >= exact
    assert int((novelty > limit).sum()) < m
    if m <= 1000 or n <= 1000:
        assert limit == exact


def test_round_shares_are_kept_to_the_row() -> None:
    novelty = torch.arange(50_000.0)
    calibration = Calibration.of(1.0, novelty)
    for share in (0.0001, 0.01, 0.05, 0.1, 0.25, 0.5):
        m = math.floor(50_001 * share)
        assert calibration.limit(share) == 50_000 - m


def test_shares_are_taken_as_they_are_written() -> None:
    """19 rows are enough for 5 %, whatever 0.05 is in binary; 18 are not."""
    for n, share in ((19, 0.05), (9, 0.1), (99, 0.01), (999, 0.001)):
        assert Calibration.of(1.0, torch.arange(float(n))).limit(share) == n - 1
        with pytest.raises(OptionError, match=f"at least {n} calibration rows, got {n - 1}"):
            Calibration.of(1.0, torch.arange(n - 1.0)).limit(share)


def log_loss(logits: Tensor, y: Tensor, temperature: float) -> float:
    return torch.nn.functional.cross_entropy(logits / temperature, y).item()


@given(
    n_classes=st.integers(2, 30),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e30]),
    sharpness=st.floats(0.3, 3.0),
    seed=st.integers(0, 2**31),
)
def test_the_temperature_has_the_least_log_loss(
    n_classes: int, scale: float, sharpness: float, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(2000, n_classes, generator=random, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(logits * sharpness, dim=1), 1, generator=random)[:, 0]
    found = fit_temperature(logits * scale, y) / scale
    best = min(np.geomspace(0.1, 10, 400), key=lambda t: log_loss(logits, y, t))
    assert log_loss(logits, y, found) <= log_loss(logits, y, best) + 1e-5
    assert abs(math.log(found * sharpness)) < 1  # as the rows were drawn


def test_where_all_is_right_nothing_becomes_certain() -> None:
    y = torch.arange(100) % 10
    logits = 5.0 * torch.eye(10)[y]
    probable = torch.softmax(logits / fit_temperature(logits, y), dim=1).amax(dim=1)
    assert 0.95 < probable.min() < 0.999


@pytest.mark.parametrize(
    "logits",
    [torch.zeros(5, 3), torch.ones(5, 1), torch.tensor([[2.0, -torch.inf, -torch.inf]] * 5)],
)
def test_where_nothing_can_be_told_it_is_one(logits: Tensor) -> None:
    assert fit_temperature(logits, torch.zeros(5, dtype=torch.int64)) == 1


def test_logits_that_mislead_become_nearly_uniform() -> None:
    y = torch.arange(100) % 4
    logits = -3.0 * torch.eye(4)[y]
    probable = torch.softmax(logits / fit_temperature(logits, y), dim=1)
    torch.testing.assert_close(probable, torch.full((100, 4), 0.25), atol=1e-3, rtol=0)


def whole(name: str, **options: object) -> tuple[ll.heads.Head, Tensor, Tensor]:
    """Give a head on features that vary together, and the features that it has learned."""
    random = torch.Generator().manual_seed(0)
    mix = torch.randn(H, H, generator=random, dtype=torch.float64)
    y = torch.arange(90) % 3
    z = torch.randn(90, H, generator=random, dtype=torch.float64) @ mix + 2 * torch.eye(H)[y] + 7
    head = make_head(name, H, n_classes=5, **options)
    head.observe(z, y)
    return head, z, y


@pytest.mark.parametrize("name", ["slda", "ridge"])
def test_novelty_is_a_distance_less_three_quarters_of_that_from_all_data(name: str) -> None:
    head, z, y = whole(name)
    share = y.bincount().double() / len(y)
    means = torch.stack([z[y == c].mean(dim=0) for c in range(3)])
    within = OAS(assume_centered=True).fit((z - means[y]).numpy()).covariance_
    apart = (means - share @ means).numpy()
    total = within + apart.T @ (share[:, None].numpy() * apart)
    queries = (
        torch.randn(50, H, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 9
    )
    to_class = [squared_distance(queries - mean, within) for mean in means]
    from_all = squared_distance(queries - share @ means, total)
    expected = torch.stack(to_class).amin(dim=0) - 0.75 * from_all
    torch.testing.assert_close(head.novelty(queries), expected, rtol=1e-8, atol=1e-8)


def squared_distance(rows: Tensor, covariance: Any) -> Tensor:
    precision = torch.from_numpy(np.linalg.inv(covariance))
    return torch.einsum("nh,hk,nk->n", rows, precision, rows)


@pytest.mark.parametrize("options", [{}, {"diagonal": True}, {"prior": "empirical"}])
def test_qda_measures_each_class_by_its_own_covariance(options: dict[str, object]) -> None:
    head, z, y = whole("qda", nu=0, **options)
    queries = (
        torch.randn(50, H, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 9
    )
    distances = []
    for c in range(3):
        d = z[y == c] - z[y == c].mean(dim=0)
        covariance = d.mT @ d / len(d)
        covariance = covariance.diagonal().diag() if "diagonal" in options else covariance
        q = queries - z[y == c].mean(dim=0)
        distances.append((q @ covariance.inverse() * q).sum(dim=1))
    expected = torch.stack(distances).amin(dim=0).sqrt()
    torch.testing.assert_close(head.novelty(queries), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["random_slda", "random_ridge"])
@pytest.mark.parametrize("width", [12, 2])  # more than the 3 classes, or fewer
def test_behind_a_map_nine_tenths_are_the_relative_distance(name: str, width: int) -> None:
    """Against the definition: squared distance to the class less that under one Gaussian of all.

    The rest is the plain squared distance, in variances of a feature within its class.
    """
    head, z, y = whole(name, width=width)
    queries = (
        torch.randn(50, H, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 9
    )
    head(queries)
    feature_map, _ = head._reading()
    phi, asked = feature_map(z), feature_map(queries)
    means = torch.stack([phi[y == c].mean(dim=0) for c in range(3)])
    within = torch.from_numpy(OAS(assume_centered=True).fit((phi - means[y]).numpy()).covariance_)
    apart = means - phi.mean(dim=0)
    total = within + apart.mT @ apart / 3
    d, all_ = asked[:, None] - means, asked - phi.mean(dim=0)
    to_class = torch.einsum("nch,hk,nck->nc", d, within.inverse(), d).amin(dim=1)
    to_all = (all_ @ total.inverse() * all_).sum(dim=1)
    plain = d.square().sum(dim=2).amin(dim=1) * len(within) / within.trace()
    expected = 0.1 * plain + 0.9 * (to_class - to_all)
    torch.testing.assert_close(head.novelty(queries), expected, rtol=1e-6, atol=1e-6)


def test_the_relative_distance_of_many_classes_takes_no_matrix_of_their_number() -> None:
    head, k = make_head("random_slda", 4, width=6), 1500
    z = torch.randn(2 * k, 4, generator=torch.Generator().manual_seed(0))
    head.observe(z, torch.arange(2 * k) % k)
    with Sizes() as made:
        head.novelty(z[:5])
    assert made.largest < k * k


def test_knn_measures_its_neighbours() -> None:
    head, z, _ = whole("knn")
    queries = (
        torch.randn(50, H, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 9
    )
    distance, _ = NearestNeighbors(n_neighbors=5).fit(z.numpy()).kneighbors(queries.numpy())
    expected = torch.from_numpy(distance.mean(axis=1))
    torch.testing.assert_close(head.novelty(queries), expected, rtol=1e-9, atol=1e-9)
    few = make_head("knn", 1, k=5)
    few.observe(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))
    assert few.novelty(torch.tensor([[3.0]])).tolist() == [2.0]


@pytest.mark.parametrize("name", ["mean", "median"])
def test_prototypes_measure_the_nearest(name: str) -> None:
    head, z, _ = whole(name)
    assert torch.equal(head.novelty(z), -head(z).amax(dim=1))


@pytest.mark.parametrize("name", ["mean", "median", "ridge", "random_ridge", "slda"])
def test_probabilities_do_not_depend_on_the_unit_of_features(name: str) -> None:
    """Without calibration: a head that sees metres is as sure as one that sees millimetres."""
    z, y = blobs()
    small, large = (make_head(name, H) for _ in range(2))
    small.observe(z.double(), y)
    large.observe(z.double() * 1e3, y)
    queries = blobs(seed=1)[0].double()
    torch.testing.assert_close(
        small.probabilities(queries), large.probabilities(queries * 1e3), rtol=1e-6, atol=1e-6
    )


def test_cosines_are_multiplied_by_twenty_unless_they_have_a_scale() -> None:
    z, y = blobs(60)
    for options, factor in (({}, 20.0), ({"scale": 3.0}, 1.0)):
        head = ll.make_head("cosine", H, **options)
        head.observe(z, y)
        expected = torch.softmax(head(z).double() * factor, dim=1)
        assert torch.allclose(head.probabilities(z).double(), expected, atol=1e-6)


def test_knn_is_calibrated_although_some_classes_get_no_vote() -> None:
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(900, 2, generator=random), torch.arange(900) % 30
    head = make_head("knn", 2)
    head.observe(z[:600], y[:600])
    assert (head.probabilities(z[600:]) == 0).any()
    head.calibrate(z[600:], y[600:])
    found = head.probabilities(z[600:])
    assert (found > 0).all()
    # Nothing can be told from such rows: no worse than to know nothing.
    loss = -found.gather(1, y[600:, None]).log().mean().item()
    assert loss < math.log(30) + 0.02


@every_head
def test_a_head_of_any_type_is_calibrated(name: str, preset: str) -> None:
    z, y = blobs(seed=1)
    for dtype in (torch.float32, torch.float64):
        head = trained(name, preset)
        head(z)
        head.to(dtype)
        head.calibrate(z.double(), y)
        assert head.novelty(z.half()).isfinite().all()
        assert head.probabilities(z).isfinite().all()
        assert (head.predict(z, unknown=0.5) == -1).any()


@pytest.mark.parametrize("name", ["mean", "slda", "knn", "random_ridge", "linear", "cosine+single"])
def test_one_class_is_enough(name: str) -> None:
    z, y = blobs(n_classes=1)
    head = make_head(name, H)
    head.observe(z, y)
    head.calibrate(*blobs(n_classes=1, seed=1))
    queries = blobs(n_classes=1, seed=2)[0]
    assert (head.probabilities(queries) == 1).all()
    assert (head.predict(queries, unknown=0.2) <= 0).all()


@pytest.mark.parametrize("scale", [1e-20, 1e20])
@pytest.mark.parametrize("name", ["mean", "median", "slda", "ridge", "knn", "random_slda"])
def test_tiny_and_huge_features_are_calibrated_alike(name: str, scale: float) -> None:
    plain, scaled = make_head(name, H), make_head(name, H)
    z, y = blobs()
    plain.observe(z.double(), y)
    scaled.observe(z.double() * scale, y)
    z, y = blobs(seed=1)
    plain.calibrate(z.double(), y)
    scaled.calibrate(z.double() * scale, y)
    z = blobs(seed=2)[0].double() * 1.3
    assert torch.equal(plain.predict(z, 0.1), scaled.predict(z * scale, 0.1))
    torch.testing.assert_close(
        plain.probabilities(z), scaled.probabilities(z * scale), rtol=1e-5, atol=1e-5
    )


def test_unit_length_float32_features_and_one_sample_a_call() -> None:
    z, y = blobs(n_per_class=100)
    z = torch.nn.functional.normalize(z)
    head = make_head("mean", H)
    head.observe(z[:150], y[:150])
    head.calibrate(z[150:], y[150:])
    together = head.predict(z, unknown=0.1)
    assert torch.equal(torch.cat([head.predict(row, 0.1) for row in z.split(1)]), together)
    one_by_one = torch.cat([head.probabilities(row) for row in z.split(1)])
    torch.testing.assert_close(one_by_one, head.probabilities(z))


@pytest.mark.parametrize(
    ("n", "name"),
    [
        (3000, "slda"),
        *(
            pytest.param(10_000, name, marks=pytest.mark.slow)
            for name in ("mean", "slda", "linear")
        ),
    ],
)
def test_very_many_classes(name: str, n: int) -> None:
    random = torch.Generator().manual_seed(0)
    centres = torch.randn(n, 16, generator=random)
    y = torch.arange(n)
    head = make_head(name, 16, n)
    for part in batches(centres, y, 5000):
        head.observe(*part)
    head.calibrate(centres + 0.1 * torch.randn(n, 16, generator=random), y)
    assert head.calibration is not None
    assert len(head.calibration.novelty) < 2000
    fresh = centres + 0.1 * torch.randn(n, 16, generator=random)
    share = (head.predict(fresh, unknown=0.05) == -1).double().mean().item()
    assert abs(share - 0.05) < 4 * math.sqrt(2 * 0.05 * 0.95 / n)
    own = head.probabilities(fresh[:100])[range(100), range(100)].mean().item()
    assert own > (0.5 if name != "linear" else 1e-5)


def test_rows_that_knn_and_median_keep_are_left_out() -> None:
    z, y = blobs()
    new = blobs(seed=1)
    for name in ("knn", "median", "random_ridge"):
        head = make_head(name, H)
        head.observe(z, y)
        with pytest.raises(DataError, match="new to the head, but it keeps all of these"):
            head.calibrate(z.double(), y)
        few = y > 0
        with pytest.raises(DataError, match="none of class 0, beside rows that the head keeps"):
            head.calibrate(
                torch.cat([new[0][new[1] > 0], z[~few]]), torch.cat([new[1][new[1] > 0], y[~few]])
            )
        assert head.calibration is None
        head.calibrate(*new)
        expected = head.calibration
        with pytest.warns(CalibrationWarning, match="2 of 62 .* left out: rows 60, 61$"):
            head.calibrate(torch.cat([new[0], z[:2]]), torch.cat([new[1], y[:2]]))
        assert head.calibration == expected


def test_data_with_equal_rows_are_calibrated_with_equal_rows() -> None:
    random = torch.Generator().manual_seed(0)
    z = torch.randint(4, (400, 2), generator=random).float()
    y = torch.arange(400) % 2
    head = make_head("knn", 2)
    head.observe(z[:200], y[:200])
    head.calibrate(z[200:], y[200:])
    assert head.calibration is not None


BAD: dict[str, tuple[object, type[LastLayerError], str]] = {
    "no rows": (lambda z, y: (z[:0], y[:0]), DataError, "calibration needs rows"),
    "a class without rows": (lambda z, y: (z[y > 0], y[y > 0]), DataError, "none of 'cat'"),
    "a class not learned": (lambda z, y: (z, y + 1), LabelError, "has learned, got class 3"),
    "a class beyond": (lambda z, y: (z, y + 9), LabelError, r"has learned, got class (9|1\d)"),
    "a negative class": (lambda z, y: (z, y - 1), LabelError, "must be at least 0, got -1"),
    "too few labels": (lambda z, y: (z, y[:-1]), LastLayerError, r"labels must be \(60,\)"),
    "no labels": (lambda z, y: (z, z[:, 0]), LabelError, "labels must be an integer tensor"),
    "NaN": (lambda z, y: (z / 0, y), DataError, "NaN or infinity"),
    "other features": (lambda z, y: (z[:, 1:], y), LastLayerError, "features must have 4 columns"),
    "no tensor": (lambda z, y: (z.numpy(), y), DataError, "floating-point tensor"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", BAD)
@pytest.mark.parametrize("name", ["mean", "knn", "cosine"])
def test_bad_rows_are_refused_and_change_nothing(name: str, wrong: str) -> None:
    make, error, message = BAD[wrong]
    head = trained(name, "exact", n_classes=4)
    head.class_names = ["cat", "dog"]
    z, y = blobs(seed=1)
    head.calibrate(z, y)
    before = head.calibration
    with pytest.raises(error, match=message):
        head.calibrate(*make(z, y))  # type: ignore[operator]
    assert head.calibration is before


@pytest.mark.parametrize(
    ("share", "error", "message"),
    [
        (0, OptionError, "unknown must be a share above 0 and below 1, got 0"),
        (1, OptionError, "above 0 and below 1"),
        (-0.1, OptionError, "above 0 and below 1"),
        (5, OptionError, "above 0 and below 1"),
        (math.nan, OptionError, "unknown must be finite"),
        ("0.05", ArgumentError, "unknown must be a number, got a str"),
        (True, ArgumentError, "unknown must be a number, got a bool"),
        (0.01, OptionError, "needs at least 99 calibration rows, got 60.*at least 1/61"),
    ],
)
def test_bad_shares_are_refused(share: object, error: type[Exception], message: str) -> None:
    z, y = blobs(seed=1)
    head = trained("mean", "exact")
    with pytest.raises(NotCalibratedError if "60" in message else error):
        head.predict(z, unknown=share)  # type: ignore[arg-type]
    head.calibrate(z, y)
    with pytest.raises(error, match=message):
        head.predict(z, unknown=share)  # type: ignore[arg-type]


def test_a_head_that_has_learned_nothing_cannot_be_calibrated() -> None:
    head = make_head("slda", H, n_classes=3)
    for ask in (lambda: head.calibrate(*blobs()), lambda: head.novelty(blobs()[0]),
                lambda: head.probabilities(blobs()[0]), lambda: head.temperature):  # fmt: skip
        with pytest.raises(NotLearnedError):
            ask()


def test_after_an_error_the_calibration_still_holds() -> None:
    head = trained("slda", "exact")
    head.calibrate(*blobs(seed=1))
    with pytest.raises(DataError):
        head.forget(torch.full((1, H), 1e5), torch.tensor([0]))
    with pytest.raises(LabelError):
        head.observe(torch.zeros(1, H), torch.tensor([-1]))
    head.observe(torch.zeros(0, H), torch.zeros(0, dtype=torch.int64))
    assert head.calibration is not None
    assert not head.calibration.stale


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0}, {"temperature": "1"}, {"rows": 3}, {"ranks": [2, 1]}, {"novelty": [1.0]},
     {"novelty": [math.inf] * 60}, {"novelty": ["a"] * 60}, {"stale": 1}, {"more": 1}],
)  # fmt: skip
def test_what_no_calibration_writes_is_refused(change: dict[str, object]) -> None:
    document = Calibration.of(1.0, torch.arange(60.0)).document()
    with pytest.raises(FileFormatError, match="a calibration must have temperature, rows"):
        Calibration.read({**document, **change})


@pytest.mark.parametrize("name", ["slda", "ridge", "random_slda"])
def test_classes_that_hardly_vary_are_measured_too(name: str) -> None:
    """What of their means differs is 1e8 times as much, and all but singular."""
    z = 1e8 * torch.eye(4, dtype=torch.float64)[torch.arange(40) % 3]
    z += torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    head = make_head(name, 4)
    head.observe(z, torch.arange(40) % 3)
    assert head.novelty(z).isfinite().all()
