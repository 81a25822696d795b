"""Order, batches, merging and forgetting leave mean, median and slda what they are."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.heads import Head, make_head
from lastlayer.heads.statistics.class_statistics import ClassStatistics
from lastlayer.heads.statistics.updating import MOST_SUMMED
from lastlayer.heads.undo import AllOrNothing

OPTIONS = {
    "mean": {},
    "median": {},
    "slda": {},
    "slda per class": {"per_class_scatter": True},
    "slda number": {"shrinkage": 0.1, "prior": "empirical"},
}
every_option = pytest.mark.parametrize("case", OPTIONS)
every_statistic = pytest.mark.parametrize("case", [case for case in OPTIONS if case != "median"])


@dataclass(frozen=True)
class Stream:
    """Some data, cut into batches, and what the head is asked."""

    z: Tensor  # (n, h) float64
    y: Tensor  # (n,)
    cuts: list[int]  # sizes of batches, n together
    queries: Tensor  # (m, h)

    def batches(self, order: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(
            zip(self.z[order].split(self.cuts), self.y[order].split(self.cuts), strict=True)
        )


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    n, h, n_classes = (draw(st.integers(1, most)) for most in (40, 6, 5))
    offset = draw(st.sampled_from([0.0, 1e4]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    z = torch.randn(n, h, generator=generator, dtype=torch.float64)
    if draw(st.booleans()):
        z = z.round()  # ties, and classes in which nothing varies
    y = torch.randint(n_classes, (n,), generator=generator)
    centres = 3 * torch.randn(n_classes, h, generator=generator, dtype=torch.float64)
    ends = sorted(draw(st.sets(st.integers(1, n), max_size=6)) | {n})
    cuts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    queries = 3 * torch.randn(7, h, generator=generator, dtype=torch.float64)
    return Stream(z + centres[y] + offset, y, cuts, queries + offset)


def fresh(case: str, h: int) -> Head:
    return make_head(case.split(maxsplit=1)[0], h, n_classes=5, **OPTIONS[case])


def learned(case: str, *batches: tuple[Tensor, Tensor]) -> Head:
    head = fresh(case, batches[0][0].shape[1])
    for batch in batches:
        head.observe(*batch)
    return head


def assert_alike(got: Head, expected: Head, queries: Tensor) -> None:
    assert torch.equal(got.seen, expected.seen)
    seen = expected.seen
    a, b = got(queries)[:, seen], expected(queries)[:, seen]
    if expected.name == "median":
        assert torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))


@every_option
@settings(max_examples=30)
@given(stream=streams(), seed=st.integers(0, 1000))
def test_order_and_batches_do_not_matter(case: str, stream: Stream, seed: int) -> None:
    order = torch.randperm(len(stream.y), generator=torch.Generator().manual_seed(seed))
    at_once = learned(case, (stream.z, stream.y))
    assert_alike(learned(case, *stream.batches(order)), at_once, stream.queries)


@every_option
@settings(max_examples=30)
@given(stream=streams())
def test_merged_heads_equal_one(case: str, stream: Stream) -> None:
    parts = [learned(case, batch) for batch in stream.batches(torch.arange(len(stream.y)))]
    merged = fresh(case, stream.z.shape[1])
    for part in parts:
        merged = merged.merge(part)
    assert_alike(merged, learned(case, (stream.z, stream.y)), stream.queries)


def spread(z: Tensor, y: Tensor) -> float:
    """Give the sum of squares within the classes."""
    means = torch.stack([z[y == c].mean(dim=0) for c in y.tolist()])
    return float((z - means).square().sum())


@every_statistic
@settings(max_examples=30)
@given(stream=streams())
def test_forgetting_is_as_if_never_seen(case: str, stream: Stream) -> None:
    kept, *others = stream.batches(torch.arange(len(stream.y)))
    # Rounding is relative to all that was seen: what stays must be some part of it, or nothing.
    single = bool((kept[1].bincount() <= 1).all())
    assume(single or spread(*kept) > 0.01 * spread(stream.z, stream.y))
    head = learned(case, *others, kept)
    for batch in others:
        head.forget(*batch)
    assert_alike(head, learned(case, kept), stream.queries)


@pytest.mark.parametrize("case", ["mean", "slda per class"])
@settings(max_examples=30)
@given(stream=streams())
def test_forgetting_a_class_is_as_if_never_seen(case: str, stream: Stream) -> None:
    head = learned(case, *stream.batches(torch.arange(len(stream.y))))
    head.forget_class(int(stream.y[0]))
    others = stream.y != stream.y[0]
    if others.any():
        rest = learned(case, (stream.z[others], stream.y[others]))
        assert_alike(head, rest, stream.queries)
    else:
        assert not head.seen.any()


@every_statistic
@settings(max_examples=30)
@given(stream=streams())
def test_an_offset_changes_nothing(case: str, stream: Stream) -> None:
    far = learned(case, *((z + 2**13, y) for z, y in stream.batches(torch.arange(len(stream.y)))))
    near = learned(case, (stream.z, stream.y))
    a, b = far(stream.queries + 2**13)[:, near.seen], near(stream.queries)[:, near.seen]
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))


@pytest.mark.parametrize("scatter", ["none", "pooled", "per_class"])
@settings(max_examples=30)
@given(stream=streams())
def test_the_statistics_are_those_of_the_data(scatter: str, stream: Stream) -> None:
    statistics = ClassStatistics(stream.z.shape[1], 5, scatter)
    for z, y in stream.batches(torch.arange(len(stream.y))):
        statistics.add(z, y)
    statistics.fold()
    pooled = torch.zeros(stream.z.shape[1], stream.z.shape[1], dtype=torch.float64)
    for c in stream.y.unique().tolist():
        rows = stream.z[stream.y == c]
        residuals = rows - rows.mean(dim=0)
        pooled += residuals.mT @ residuals
        assert int(statistics.count[c]) == len(rows)
        torch.testing.assert_close(statistics.mean[c], rows.mean(dim=0), rtol=1e-12, atol=1e-12)
        if scatter == "none":
            expected = residuals.square().sum()
            torch.testing.assert_close(statistics.spread[c], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        statistics.overall_mean(), stream.z.mean(dim=0), rtol=1e-12, atol=1e-12
    )
    if scatter != "none":
        torch.testing.assert_close(statistics.pooled_scatter(), pooled, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_any_number_of_rows_is_added_up_at_once(dtype: torch.dtype, offset: float) -> None:
    """More than one piece, more than stays in a cache; far from zero digits would cancel."""
    generator = torch.Generator().manual_seed(0)
    n, h = MOST_SUMMED + 1000, 40
    z = (torch.randn(n, h, generator=generator, dtype=torch.float64) + offset).to(dtype)
    y = torch.randint(3, (n,), generator=generator)
    statistics = ClassStatistics(h, 5, "none")
    statistics.add(z, y)
    for c in range(3):
        rows = z[y == c].double()
        mean = rows.mean(dim=0)
        torch.testing.assert_close(statistics.mean[c], mean, rtol=1e-12, atol=1e-13)
        expected = (rows - mean).square().sum()
        torch.testing.assert_close(statistics.spread[c], expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_alone_in_their_class_count_as_others_do(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "lastlayer.heads.statistics.updating"
    monkeypatch.setattr("lastlayer.heads.statistics.class_statistics.GATHERED", 1)  # nothing waits
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(300, 4, generator=random, dtype=dtype) + 100, torch.arange(300) % 90
    y[:20] = 7  # some classes are there several times, in the first batch and later
    pooled, apart = (ClassStatistics(4, 90, kind) for kind in ("pooled", "per_class"))
    for rows in (slice(0, 80), slice(80, 150), slice(150, 300)):
        before = {name: t.clone() for name, t in pooled.state_dict().items()}
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.add_gram", fail)
            with pytest.raises(DataError, match="Injected"), AllOrNothing(pooled):
                pooled.add(z[rows], y[rows])
        for name, tensor in pooled.state_dict().items():
            assert torch.equal(tensor, before[name])
        pooled.add(z[rows], y[rows])
        apart.add(z[rows], y[rows])
    assert torch.equal(pooled.count, y.bincount(minlength=90))
    torch.testing.assert_close(pooled.mean, apart.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(
        pooled.pooled_scatter(), apart.pooled_scatter(), rtol=1e-11, atol=1e-11
    )


@every_statistic
def test_no_more_is_forgotten_than_was_seen(case: str) -> None:
    z, y = torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 1, 1])
    head = learned(case, (z, y))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    message = r"cannot forget 2 samples of class 4: only 0 were learned"
    with pytest.raises(DataError, match=message):
        head.forget(z[:3], torch.tensor([0, 4, 4]))
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, before[name])
    head.forget(z, y)
    assert not head.seen.any()
    assert all(not tensor.any() for tensor in head.state_dict().values())


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("scatter", ["none", "pooled", "per_class"])
def test_new_tensors_or_old_ones_overwritten_are_the_same(
    scatter: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU does, done on a CPU: new rows instead of overwritten ones."""
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(90, 4, generator=random), torch.randint(5, (90,), generator=random)
    module = "lastlayer.heads.statistics.updating"
    usual, afresh = (ClassStatistics(4, 5, scatter) for _ in range(2))  # type: ignore[arg-type]
    monkeypatch.setattr("lastlayer.heads.statistics.class_statistics.GATHERED", 1)  # nothing waits
    monkeypatch.setattr(f"{module}.rows_at_once", lambda h, device: -(-40 // pieces))
    monkeypatch.setattr(f"{module}.MOST_SUMMED", 1)
    for rows in (slice(0, 40), slice(40, 80), slice(80, 83)):  # the last has fewer than classes
        usual.add(z[rows], y[rows])
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.IN_PLACE", frozenset())
            before = {name: t.clone() for name, t in afresh.state_dict().items()}
            with pytest.raises(DataError, match="Injected"), AllOrNothing(afresh):
                _fail_after(afresh, z[rows], y[rows], patched)
            for name, tensor in afresh.state_dict().items():
                assert torch.equal(tensor, before[name])
            afresh.add(z[rows], y[rows])
    usual.remove(z[:40], y[:40])
    monkeypatch.setattr(f"{module}.IN_PLACE", frozenset())
    afresh.remove(z[:40], y[:40])
    for name, tensor in usual.state_dict().items():
        torch.testing.assert_close(afresh.state_dict()[name], tensor)


def fail(*_: object) -> None:
    raise DataError("Injected")


def _fail_after(
    statistics: ClassStatistics, z: Tensor, y: Tensor, patched: pytest.MonkeyPatch
) -> None:
    """Fail at the very end of an update."""
    patched.setattr("lastlayer.heads.statistics.updating.wear_down", fail)
    try:
        statistics.add(z, y)
    finally:
        patched.undo()
        patched.setattr("lastlayer.heads.statistics.updating.IN_PLACE", frozenset())
