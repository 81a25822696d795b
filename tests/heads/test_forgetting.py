"""How exact forgetting is: what rounding leaves is taken for nothing, or refused."""

import pytest
import torch
from streams import assert_same_bits, snapshot

from lastlayer.catalogue.head_cards import all_heads, card_of
from lastlayer.errors import DataError, LastLayerError, UnsupportedError
from lastlayer.heads import make_head, options_of
from lastlayer.heads.statistics.possible import precision


def stream(n: int = 100, h: int = 8, n_classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % n_classes
    centres = 3 * torch.randn(n_classes, h, generator=generator, dtype=torch.float64)
    return centres[y] + torch.randn(n, h, generator=generator, dtype=torch.float64), y


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("own", [False, True])
def test_what_is_left_of_repeated_samples_can_predict(seed: int, own: bool) -> None:
    z, y = stream(n=8)
    z, y = z.repeat(50, 1), y.repeat(50)  # eight different samples
    head = make_head("slda", 8, per_class_scatter=own)
    head.observe(z, y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    gone, stays = order[12:], order[:12]
    for part in gone.split(37):
        head.forget(z[part], y[part])
    rest = make_head("slda", 8, per_class_scatter=own)
    rest.observe(z[stays], y[stays])
    assert torch.equal(head.predict(z), rest.predict(z))


@pytest.mark.parametrize("own", [False, True])
def test_copies_of_one_sample_that_are_left_do_not_vary(own: bool) -> None:
    z, y = stream()
    kept = torch.cat([z[:4], z[:4], z[:4]])
    head, rest = (make_head("slda", 8, per_class_scatter=own) for _ in range(2))
    head.observe(torch.cat([z[4:], kept]), torch.cat([y[4:], y[:4].repeat(3)]))
    head.forget(z[4:], y[4:])
    rest.observe(kept, y[:4].repeat(3))
    torch.testing.assert_close(head(z), rest(z), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1e8, 1e10, 1e12])
@pytest.mark.parametrize("options", [{}, {"per_class_scatter": True}, {"shrinkage": 0.1}])
def test_what_an_outlier_has_drowned_is_refused(size: float, options: dict[str, object]) -> None:
    z, y = stream()
    outlier = torch.full((1, 8), size, dtype=torch.float64), torch.tensor([0])
    head = make_head("slda", 8, **options)
    head.observe(z, y)
    head.observe(*outlier)
    before = snapshot(head)
    with pytest.raises(DataError, match=r"cannot forget exactly.*new head.*observe what remains"):
        head.forget(*outlier)
    assert_same_bits(snapshot(head), before)


@pytest.mark.parametrize("name", ["mean", "slda"])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8, 1e10, 1e12, 1e15])
def test_what_is_not_refused_is_exact(name: str, size: float) -> None:
    z, y = stream()
    outliers = size * torch.ones(3, 8, dtype=torch.float64), torch.tensor([0, 1, 1])
    head, plain = make_head(name, 8), make_head(name, 8)
    plain.observe(z, y)
    head.observe(*outliers)
    head.observe(z, y)
    assert precision(head.statistics) < 1e-6  # relative to what was seen, nothing is lost yet
    try:
        head.forget(*outliers)
    except DataError:
        assert size >= {"slda": 1e5, "mean": 1e9}[name]
    else:
        assert size <= {"slda": 1e7, "mean": 1e11}[name]
        assert 0 < precision(head.statistics) <= 1e-6
        assert torch.equal(head.predict(z), plain.predict(z))
        torch.testing.assert_close(head(z), plain(z), rtol=1e-4, atol=1e-4)


def test_a_class_that_was_forgotten_whole_leaves_nothing_behind() -> None:
    z, y = stream()
    head = make_head("mean", 8)
    head.observe(z, y)
    head.observe(1e3 * z, torch.full_like(y, 4))
    head.forget_class(4)
    assert head.statistics.spread[4] == 0
    assert not head.seen[4]


@pytest.mark.parametrize("name", [n for n in all_heads() if card_of(n).abilities.forgets])
def test_not_one_sample_more_can_be_forgotten_than_was_seen(name: str) -> None:
    z, y = stream(n=12)
    head = make_head(name, 8)
    head.observe(z, y)
    before = snapshot(head)
    more = torch.cat([z[y == 2], z[y == 2][:1]])
    with pytest.raises(DataError, match="cannot forget"):
        head.forget(more, torch.full((len(more),), 2))
    assert_same_bits(snapshot(head), before)
    head.forget(more[:-1], torch.full((len(more) - 1,), 2))


def test_precision_is_what_rounding_left_beside_the_spread_of_the_means() -> None:
    alone, pair = make_head("mean", 1), make_head("mean", 1)
    alone.observe(torch.tensor([[3.0]]), torch.tensor([0]))
    pair.observe(torch.tensor([[1.0], [5.0]]), torch.tensor([0, 1]))
    for head, spread in ((alone, 3.0), (pair, 2.0)):  # from zero, and from the middle of both
        wrong = float(head.statistics.wear.sqrt())
        assert wrong > 0
        assert precision(head.statistics) == pytest.approx(wrong / spread, rel=1e-6, abs=0)


@pytest.mark.parametrize("name", ["mean", "slda"])
def test_a_merged_head_is_as_worn_as_both(name: str) -> None:
    z, y = stream()
    worn, fresh = make_head(name, 8), make_head(name, 8)
    worn.observe(1e6 * z, y)
    worn.observe(z, y)
    fresh.observe(z, y)
    for merged in (worn.merge(fresh), fresh.merge(worn)):
        assert float(merged.statistics.wear) >= float(worn.statistics.wear)


@pytest.mark.parametrize("label", ["a", None, 1.0, [0], torch.tensor(0.0)])
def test_a_class_to_forget_is_a_number(label: object) -> None:
    head = make_head("mean", 2)
    head.observe(torch.rand(6, 2), torch.tensor([0, 1] * 3))
    with pytest.raises(LastLayerError, match="class"):
        head.forget_class(label)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["slda", "ridge", "random_ridge", "random_slda"])
def test_what_to_do_in_place_of_forgetting_a_class_can_be_done(name: str) -> None:
    head = make_head(name, 4)
    with pytest.raises(UnsupportedError, match="forget the samples of the class instead") as caught:
        head.forget_class(0)
    named = "per_class_scatter=True" in str(caught.value)
    assert named == ("per_class_scatter" in options_of(name))


def test_a_forgotten_class_is_marked() -> None:
    head = make_head("qda", 2)
    head.observe(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3)
    head.forget_class(1)
    assert head.as_module().about["not_learned"] == [1]
