"""Small batches wait and are folded in together: nobody can tell, but by the clock."""

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from streams import H, assert_same_bits, blobs, snapshot

from lastlayer.errors import ArgumentError, DataError
from lastlayer.heads import Head, load_head, make_head
from lastlayer.heads.statistics.class_statistics import GATHERED

CASES = [("mean", "exact"), ("mean", "paper"), ("slda", "exact"), ("slda", "paper")]
every_case = pytest.mark.parametrize(("name", "preset"), CASES)
Z, Y = blobs(n_per_class=30)
Z = Z.double()


def waiting(name: str, preset: str) -> Head:
    head = make_head(name, H, preset=preset)
    for row in range(len(Y)):
        head.observe(Z[row : row + 1], Y[row : row + 1])
    assert head._unfolded._waiting > 0
    return head


def at_once(name: str, preset: str) -> Head:
    head = make_head(name, H, preset=preset)
    head.observe(Z, Y)
    return head


@every_case
def test_what_waits_is_seen_at_once(name: str, preset: str) -> None:
    head = waiting(name, preset)
    assert head.n_classes == 3
    assert head.seen.all()
    assert head.statistics.total == len(Y)
    torch.testing.assert_close(head(Z), at_once(name, preset)(Z), rtol=1e-9, atol=1e-9)


@every_case
def test_copies_files_and_moves_hold_what_waited(name: str, preset: str, tmp_path: Path) -> None:
    expected = at_once(name, preset)(Z)
    head = waiting(name, preset)
    head.save(tmp_path / "head")
    other = make_head(name, H, preset=preset)
    other.load_state_dict(waiting(name, preset).state_dict())
    for got in (
        load_head(tmp_path / "head"),
        other,
        copy.deepcopy(waiting(name, preset)),
        pickle.loads(pickle.dumps(waiting(name, preset))),
        waiting(name, preset).to("cpu"),
        waiting(name, preset).double(),
    ):
        assert got._unfolded._waiting == 0
        torch.testing.assert_close(got(Z), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["mean", "slda"])
def test_merging_and_forgetting_know_what_waits(name: str) -> None:
    twice = at_once(name, "exact")
    twice.observe(Z, Y)
    merged = waiting(name, "exact").merge(waiting(name, "exact"))
    torch.testing.assert_close(merged(Z), twice(Z), rtol=1e-9, atol=1e-9)
    head, rest = waiting(name, "exact"), make_head(name, H)
    head.forget(Z[:20], Y[:20])
    rest.observe(Z[20:], Y[20:])
    torch.testing.assert_close(head(Z), rest(Z), rtol=1e-9, atol=1e-9)


@every_case
def test_the_call_that_brings_a_bad_row_is_refused(name: str, preset: str) -> None:
    head = waiting(name, preset)
    with pytest.raises(DataError, match="NaN or infinity in 1 of 1 rows"):
        head.observe(Z[:1] * torch.nan, Y[:1])
    assert_same_bits(snapshot(head), snapshot(waiting(name, preset)))


@every_case
def test_no_more_wait_than_is_stated(name: str, preset: str) -> None:
    head = make_head(name, H, preset=preset)
    for _ in range(3 * GATHERED // 50):
        head.observe(Z[:50], Y[:50])
        assert head._unfolded._waiting <= GATHERED
    assert head.statistics.total == 50 * (3 * GATHERED // 50)


@every_case
def test_a_state_that_is_loaded_replaces_what_waits(name: str, preset: str) -> None:
    head = waiting(name, preset)
    other = at_once(name, preset)
    head.load_state_dict(other.state_dict())
    assert_same_bits(snapshot(head), snapshot(other))


@every_case
def test_large_batches_are_learned_and_answered_in_pieces(
    name: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of a few rows, as a file larger than memory would be cut."""
    expected = at_once(name, preset)
    monkeypatch.setattr("lastlayer.heads.statistics.moments._ROOM", {"cpu": 7 * 8 * H})
    monkeypatch.setattr("lastlayer.heads.statistics.updating.MOST_SUMMED", 1)
    monkeypatch.setattr(Head, "piece", 11 * H)
    monkeypatch.setattr("lastlayer.heads.statistics.class_statistics.GATHERED", 1)
    for dtype in (torch.float16, torch.float32, torch.float64):
        head, whole = make_head(name, H, preset=preset), make_head(name, H, preset=preset)
        head.observe(Z.to(dtype), Y)
        whole.observe(Z.to(dtype).double(), Y)
        torch.testing.assert_close(head(Z), whole(Z), rtol=1e-9, atol=1e-9)
        assert torch.equal(head.predict(Z), head(Z).argmax(dim=1))
    assert torch.equal(head.predict(Z), expected.predict(Z))
    with pytest.raises(DataError, match="NaN or infinity in 90 of 180"):
        head.observe(torch.cat([Z, Z * torch.nan]), Y.repeat(2))
    assert torch.equal(head.predict(Z), expected.predict(Z))


@every_case
def test_what_waited_waits_again_after_an_error(name: str, preset: str) -> None:
    """Rows that came in a block that fails may not stand where others waited before it."""
    head, expected = waiting(name, preset), snapshot(waiting(name, preset))

    def then_stop() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(2 * GATHERED // len(Y) + 1):
            yield Z.flip(0), Y
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        head.observe_all(then_stop())
    assert_same_bits(snapshot(head), expected)


def test_nothing_is_kept_of_what_is_thrown_away_on_an_error() -> None:
    head, large = make_head("mean", H), torch.cat([Z] * 100)
    head.observe(large, Y.repeat(100))
    before = head.statistics.mean.clone()

    def then_stop() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield large + 1, Y.repeat(100)
        raise KeyboardInterrupt

    for disposable in (False, True):
        head.disposable = disposable
        with pytest.raises(KeyboardInterrupt):
            head.observe_all(then_stop())
        assert torch.equal(head.statistics.mean, before) != disposable


MANY = {
    "mean": {},
    "slda": {},
    "slda paper": {"preset": "paper"},
    "slda per class": {"per_class_scatter": True},
    "mean fading": {"half_life": 100},
    "slda fading": {"half_life": 100},
}


@pytest.mark.parametrize("case", MANY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_rows_than_wait_are_looked_at_too(case: str, dtype: torch.dtype) -> None:
    """They are looked at while they are learned: a bad one among them must leave no trace."""
    n = GATHERED
    z, y = Z.to(dtype).repeat(n // len(Z) + 1, 1)[:n], Y.repeat(n // len(Y) + 1)[:n]
    head = make_head(case.split(maxsplit=1)[0], H, **MANY[case])
    head.observe(z, y)
    before = snapshot(head)
    values = [torch.nan, torch.inf, -torch.inf] + [-1e61] * (dtype == torch.float64)
    for value in values:
        bad = z.clone()
        bad[n - 2, 1] = value
        for labels in (y, y + 5):  # classes known and new
            with pytest.raises(DataError, match=r"features must be (finite|at most)"):
                head.observe(bad, labels)
        if head.abilities.forgets:
            with pytest.raises(DataError, match=r"features must be (finite|at most)"):
                head.forget(bad, y)
        assert_same_bits(snapshot(head), before)


def test_features_as_large_as_allowed_are_learned() -> None:
    head = make_head("mean", H)
    z = torch.full((GATHERED, H), 1e60, dtype=torch.float64)
    z[: GATHERED // 2] *= -1
    head.observe(z, torch.arange(GATHERED) // (GATHERED // 2))
    assert head.predict(z[[0, -1]]).tolist() == [0, 1]


@pytest.mark.parametrize("bad", [3, [1], [(Z,)], "ab", [(Z, Y), None]])
def test_what_is_no_pair_is_refused_and_nothing_is_learned(bad: object) -> None:
    head = make_head("mean", H)
    head.observe(Z, Y)
    before = snapshot(head)
    with pytest.raises(ArgumentError, match=r"pair"):
        head.observe_all(bad)  # type: ignore[arg-type]
    assert_same_bits(snapshot(head), before)
