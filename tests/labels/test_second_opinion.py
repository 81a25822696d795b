"""Neighbours see what a head cannot describe, and keep its count from misleading."""

import pytest
import torch
from torch import Tensor
from wrong_labels import draw

import lastlayer as ll
from lastlayer.labels.second_opinion import Beside, votes


def opposite_corners(n: int, wrong: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw two classes, each in two opposite corners, which no line parts; some labels wrong."""
    random = torch.Generator().manual_seed(0)
    corner = torch.randint(4, (n,), generator=random)
    middles = torch.tensor(
        [[2.0, 2.0, 0.5], [-2.0, -2.0, 0.5], [2.0, -2.0, -0.5], [-2.0, 2.0, -0.5]]
    )
    z = middles[corner] + 0.7 * torch.randn(n, 3, generator=random)
    truth = corner // 2
    y = truth.clone()
    rows = torch.randperm(n, generator=random)[:wrong]
    y[rows] = 1 - y[rows]
    return z, y, truth


@pytest.mark.parametrize("wrong", [0, 80])
def test_rows_that_a_head_cannot_describe_are_not_counted_as_wrong(wrong: int) -> None:
    z, y, _ = opposite_corners(1600, wrong)
    data = ll.Features.from_arrays(z, y, test=(z, y))
    found = ll.audit(data)
    assert found.interval[0] <= wrong <= found.interval[1]
    fitting = ll.audit(data, "knn")
    assert fitting.interval[0] - 12 <= wrong <= fitting.interval[1] + 12


def test_a_head_that_describes_badly_is_named() -> None:
    """A part of a class lies beyond another class, which slda is sure that it is."""
    drawn = draw(1500, 3, 6, apart=2.0)
    z, y = drawn.z.clone(), drawn.truth.clone()
    ours, theirs = (z[y == c].mean(dim=0) for c in (0, 1))
    island = (y == 0).nonzero().flatten()[:60]
    z[island] += 1.7 * (theirs - ours)
    data = ll.Features.from_arrays(z, y, test=(z, y))
    bad, good = ll.audit(data), ll.audit(data, "knn")
    assert not bad.beside.confirms
    assert bad.beside.alone > 0.02
    assert any("slda alone would count" in text for text in bad.warnings)
    assert bad.wrong < 10
    assert good.beside.confirms
    assert not any("alone would count" in text for text in good.warnings)


def test_where_few_rows_are_right_the_count_may_be_far_off() -> None:
    drawn = draw(900, 12, 6, apart=0.4)
    found = ll.audit(ll.Features.from_arrays(drawn.z, drawn.truth, test=(drawn.z, drawn.truth)))
    assert found.known.left_out < 0.5
    assert found.sentences[0].startswith("Very roughly")
    assert any("far off, either way" in text for text in found.warnings)


def test_votes_are_those_of_the_nearest_but_copies() -> None:
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(90, 4, generator=random), torch.randint(3, (90,), generator=random)
    z[1], y[1] = z[0], y[0]  # a copy of a row has no say about it
    z[3], y[3] = z[2], (y[2] + 1) % 3  # one with another label has
    group = torch.arange(90)
    group[1] = 0
    rows = torch.tensor([0, 2, 50])
    apart = torch.cdist(z[rows], z)
    apart[0, :2], apart[1, 2], apart[2, 50] = torch.inf, torch.inf, torch.inf
    nearest = y[apart.argsort(dim=1)[:, :10]]
    expected = torch.stack([(nearest == c).sum(dim=1) for c in range(3)], dim=1)
    torch.testing.assert_close(votes(z, y, group, rows).exp() - 0.5, expected.double())


def test_neighbours_of_very_many_rows_are_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(3000, 4, 6, apart=1.5)
    rows = torch.arange(0, 3000, 30)
    whole = votes(drawn.z, drawn.y, torch.arange(3000), rows)
    monkeypatch.setattr("lastlayer.labels.second_opinion.AMONG", 500)
    some = votes(drawn.z, drawn.y, torch.arange(3000), rows)
    assert not torch.equal(some, whole)
    assert (some.argmax(dim=1) == whole.argmax(dim=1)).double().mean() > 0.95
    assert ((some.exp() - 0.5).sum(dim=1) - 10).abs().max() < 1e-6


def test_votes_are_the_same_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(300, 4, generator=random), torch.randint(3, (300,), generator=random)
    rows = torch.arange(0, 300, 7)
    whole = votes(z, y, torch.arange(300), rows)
    monkeypatch.setattr("lastlayer.labels.second_opinion._BLOCK", 1)
    torch.testing.assert_close(votes(z, y, torch.arange(300), rows), whole)


def test_a_count_by_both_holds_what_is_drawn() -> None:
    beside = Beside(500, 0.2, 0.03, 0.05, 0.08)
    assert not beside.confirms
    count, (low, high) = beside.by_both(1000)
    assert count == 50
    assert low == pytest.approx(50 - (20**2 + 1.96**2 * 47.5) ** 0.5)
    assert high == pytest.approx(50 + (30**2 + 1.96**2 * 47.5) ** 0.5)
    assert Beside(500, 0.04, 0.03, 0.05, 0.08).confirms
