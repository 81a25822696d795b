"""An audit finds what was planted, says what limits it, and changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor
from wrong_labels import draw

import lastlayer as ll
from lastlayer.catalogue.head_cards import able
from lastlayer.errors import DataError, LastLayerError, OptionError, UnsupportedError
from lastlayer.heads import Head
from lastlayer.labels.copies import near_copies


@pytest.mark.parametrize("head", able("leaves_out"))
@pytest.mark.parametrize("score", ["noise", "confidence", "margin"])
def test_planted_errors_come_first(head: str, score: str) -> None:
    drawn = draw(600, 4, 8, apart=1.5, rate=0.05)
    options = {"width": 60} if head.startswith("random") else {}
    found = ll.audit(drawn.features(), head, score=score, **options)
    assert found.table.columns == ["row", "label", "suggestion", "score", "wrong"]
    assert found.table.height == 600
    assert found.table["score"].is_sorted(descending=True)
    n = int(drawn.wrong.sum())
    first = torch.from_numpy(found.table["row"].head(n).to_numpy().copy())
    assert drawn.wrong[first].double().mean() > 0.65
    rows = first[drawn.wrong[first]]
    suggested = found.table.filter(pl.col("row").is_in(rows.tolist())).sort("row")["suggestion"]
    truth = [str(int(c)) for c in drawn.truth[rows.sort().values]]
    assert np.mean(np.array(suggested.to_list()) == np.array(truth)) > 0.9


def test_it_counts_and_confuses_and_changes_nothing() -> None:
    drawn = draw(1000, 3, 8, apart=1.5, rate=0.0)
    y = drawn.truth.clone()
    gone = (drawn.truth == 2).nonzero().flatten()[:60]
    y[gone] = 0
    data = ll.Features.from_arrays(drawn.z, y, test=(drawn.z[:9], drawn.truth[:9]))
    before = data.train.y.clone(), data.train.z.clone()
    found = ll.audit(data)
    assert found.interval[0] <= 60 <= found.interval[1]
    assert found.confusion.row(0)[:2] == ("0", "2")
    assert found.confusion.row(0)[2] == pytest.approx(60, abs=8)
    assert abs(found.suspects.height - 60) < 8
    assert found.worst(7).height == 7
    assert torch.equal(data.train.y, before[0])
    assert torch.equal(data.train.z, before[1])


def test_copies_with_other_labels_are_named() -> None:
    drawn = draw(500, 3, 8, apart=1.5)
    z, y = drawn.z.float(), drawn.truth.clone()
    z[10], y[10] = z[20], (y[20] + 1) % 3  # an exact copy
    z[30], y[30] = z[40] + 1e-3, (y[40] + 1) % 3  # nearly one
    z[50], y[50] = z[60], y[60]  # with the same label: no contradiction
    found = ll.audit(ll.Features.from_arrays(z, y, test=(z, y)))
    pairs = {(row, other): distance for row, other, _, _, distance in found.duplicates.rows()}
    assert pairs.keys() == {(10, 20), (30, 40)}
    assert pairs[10, 20] == 0
    assert 0 < pairs[30, 40] < 0.01


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_near_copies_are_found_by_a_few_directions(offset: float) -> None:
    """Of wide rows a few directions say which may be near; none is lost by that."""
    random = torch.Generator().manual_seed(0)
    z = torch.randn(400, 200, generator=random) + offset
    y = torch.arange(400) % 4
    for row, apart in zip(range(0, 80, 8), torch.linspace(0.01, 0.2, 10).tolist(), strict=True):
        away = torch.randn(200, generator=random)
        z[row + 1] = z[row] + apart * 20.0 * away / away.norm()
    found = near_copies(z, y, torch.arange(0, 400, 8), 20.0)
    expected = []
    for row in range(0, 400, 8):
        apart = (z - z[row]).double().norm(dim=1) / 20.0
        apart[y == y[row]] = torch.inf
        if apart.min() <= 0.1:
            expected.append((row, int(apart.argmin())))
    assert [(pair.row, pair.other) for pair in found] == expected
    assert len(expected) in (4, 5)


def test_rows_far_from_every_class_are_named() -> None:
    drawn = draw(500, 3, 8)
    z = drawn.z.clone()
    z[17] = 40.0
    found = ll.audit(ll.Features.from_arrays(z, drawn.truth, test=(z, drawn.truth)))
    assert found.strange["row"].to_list() == [17]
    assert found.strange["ranges"][0] > 10


def test_two_names_of_one_class_are_named() -> None:
    drawn = draw(600, 3, 8, apart=1.5)
    y = drawn.truth.clone()
    ones = (y == 1).nonzero().flatten()
    y[ones[::2]] = 3
    found = ll.audit(ll.Features.from_arrays(drawn.z, y, test=(drawn.z, y)))
    assert [row[:2] for row in found.same.rows()] == [("1", "3")]
    assert "may be one class" in " ".join(found.sentences)


def test_features_that_know_the_labels_are_warned_of() -> None:
    """As of a network trained on these labels: they show the wrong ones too."""
    drawn = draw(800, 4, 8, apart=0.4, rate=0.1)
    data = drawn.features(test=0.5)
    fair = ll.audit(data)
    assert not any("blind" in text for text in fair.warnings)
    z = data.train.z + 4 * torch.eye(4)[data.train.y].repeat(1, 2)
    knows = ll.Features.from_arrays(z, data.train.y, test=(data.test.z, data.test.y))
    blind = ll.audit(knows)
    assert any("blind" in text for text in blind.warnings)
    assert blind.known.left_out > blind.known.other + 0.2


def test_a_few_rows_of_another_split_tell_nothing() -> None:
    drawn = draw(800, 4, 8, apart=1.0)
    z, y = drawn.z[:1], (drawn.y[:1] + 1) % 4
    found = ll.audit(ll.Features.from_arrays(drawn.z, drawn.y, test=(z, y)))
    assert found.known.other == 0.0
    assert not any("blind" in text for text in found.warnings)


def test_features_that_cannot_tell_are_warned_of() -> None:
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(300, 5, generator=random), torch.randint(3, (300,), generator=random)
    found = ll.audit(ll.Features.from_arrays(z, y, test=(z[:9], y[:9])))
    assert any("hardly tell" in text for text in found.warnings)


def test_the_only_row_of_a_class_is_not_judged() -> None:
    drawn = draw(300, 3, 6, apart=1.5, rate=0.05)
    z, y = torch.cat([drawn.z, drawn.z[:1] + 9]), torch.cat([drawn.y, torch.tensor([3])])
    found = ll.audit(ll.Features.from_arrays(z, y, test=(z[:9], y[:9])))
    assert found.table.height == 300
    assert 300 not in found.table["row"]
    assert any("1 row is the only one" in text for text in found.warnings)


def test_a_table_needs_no_test_rows_and_keeps_its_columns(tmp_path: Path) -> None:
    drawn = draw(200, 3, 4, apart=1.5, rate=0.05)
    frame = pl.DataFrame({
        "z": drawn.z.tolist(), "species": [f"bird {c}" for c in drawn.y.tolist()],
        "name": [f"n{i}" for i in range(200)],
    })  # fmt: skip
    frame.write_parquet(tmp_path / "birds.parquet")
    found = ll.audit(tmp_path / "birds.parquet", label="species", id="name")
    assert found.table.columns == ["row", "name", "label", "suggestion", "score", "wrong"]
    assert (found.table["name"] == "n" + found.table["row"].cast(pl.String)).all()
    assert any("No other split" in text for text in found.warnings)
    assert found.label == "species"


def test_the_page_shows_pictures_links_and_texts(tmp_path: Path) -> None:
    drawn = draw(60, 3, 4, apart=1.5, rate=0.1)
    picture = tmp_path / "bird.png"
    picture.write_bytes(b"\x89PNG not much of one")
    shown = [str(picture), "https://example.org/a?b=<i>", "<b>a text</b>", str(tmp_path)] * 15
    frame = pl.DataFrame({"z": drawn.z.tolist(), "y": drawn.y.tolist(), "show": shown})
    frame.write_parquet(tmp_path / "birds.parquet")
    ll.audit(tmp_path / "birds.parquet", show="show").page(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert '<img src="data:image/png;base64,' in page
    assert 'href="https://example.org/a?b=&lt;i&gt;"' in page
    assert "&lt;b&gt;a text&lt;/b&gt;" in page
    assert "<b>a text" not in page


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"head": "linear"}, UnsupportedError, "cannot leave rows out exactly"),
        ({"half_life": 9.0}, UnsupportedError, "cannot leave rows out exactly"),
        ({"score": "worst"}, OptionError, "score must be"),
        ({"rows": "all"}, OptionError, "one split"),
        ({"id": "name"}, LastLayerError, "unknown column 'name'"),
        ({"k": 3}, OptionError, "no option 'k'"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], error: type[Exception], says: str) -> None:
    drawn = draw(60, 3, 4)
    with pytest.raises(error, match=says):
        ll.audit(drawn.features(), **how)


def test_one_class_and_single_rows_are_refused() -> None:
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    for y in (torch.zeros(6, dtype=torch.int64), torch.arange(6)):
        with pytest.raises(DataError):
            ll.audit(ll.Features.from_arrays(z, y, test=(z, y)))


def test_equal_seeds_give_equal_tables() -> None:
    drawn = draw(1200, 3, 6, rate=0.05)
    one, other = (ll.audit(drawn.features(), "random_slda", width=50, seed=3) for _ in range(2))
    assert one.table.equals(other.table)


@pytest.mark.parametrize("kept", [0, 1 << 24])
def test_pieces_are_as_the_whole(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether answers are kept or not: features may be too many to be in memory at once."""
    drawn = draw(500, 3, 6, rate=0.05)
    drawn.z[7], drawn.y[7] = drawn.z[3], drawn.y[3]
    whole = ll.audit(drawn.features())
    asked = []
    leave_out = Head.leave_one_out

    def counting(head: Head, z: Tensor, *more: Tensor) -> Tensor:
        asked.append(len(z))
        return leave_out(head, z, *more)

    monkeypatch.setattr(Head, "leave_one_out", counting)
    monkeypatch.setattr("lastlayer.labels.out_of_fold.KEPT", kept)
    monkeypatch.setattr("lastlayer.labels.out_of_fold.PIECE", 100)
    pieces = ll.audit(drawn.features())
    assert pieces.table["row"].equals(whole.table["row"])
    assert pieces.wrong == pytest.approx(whole.wrong, rel=1e-6)
    if kept:
        assert max(asked) <= 100
        assert sum(asked) == 500
