"""A calibration that lives: its average is as promised whatever comes, as part of a change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streams import H, batches, blobs, make_head
from torch import Tensor

import lastlayer as ll
from lastlayer.cli.text import describe_calibration
from lastlayer.errors import DataError, FileFormatError, NotCalibratedError, OptionError
from lastlayer.heads import Head
from lastlayer.heads.calibration import Calibration, fit_temperature
from lastlayer.heads.living import BLOCK, GAIN, RECENT, USUAL, Living

HEADS = ["mean", "slda", "knn", "ridge", "linear", "cosine+single"]


@given(
    n=st.integers(1, 400), drift=st.floats(-50, 50),
    kind=st.sampled_from(["walk", "steps", "ties"]), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_the_average_is_as_promised_whatever_comes(
    n: int, drift: float, kind: str, seed: int
) -> None:
    """Gibbs and Candès' inequality, on streams that no rule was made for."""
    rng = np.random.default_rng(seed)
    novelty = rng.normal(size=n) + drift * np.arange(n) / n
    if kind == "walk":
        novelty = novelty.cumsum()
    if kind == "ties":
        novelty = novelty.round()
    living, away = Living.of(torch.from_numpy(rng.normal(size=50))), np.zeros(len(USUAL))
    for strange in novelty:
        away += [strange > (living.limit(share) or 0) for share in USUAL]
        one = torch.tensor([strange])
        living, _ = living.follow(1.0, one, torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    for share, count in zip(USUAL, away, strict=True):
        assert abs(count / n - share) <= (max(share, 1 - share) + GAIN) / (GAIN * n) + 1e-12


def test_batches_make_no_difference_to_what_it_follows() -> None:
    rng = np.random.default_rng(0)
    novelty = torch.from_numpy(rng.normal(size=700))
    evidence = torch.from_numpy(rng.normal(size=(700, 3)))
    y = torch.from_numpy(rng.integers(3, size=700))
    whole = Living.of(novelty[:200]).follow(1.0, novelty, evidence, y)
    living, temperature = Living.of(novelty[:200]), 1.0
    for begin in range(0, 700, 37):
        some = slice(begin, begin + 37)
        living, temperature = living.follow(temperature, novelty[some], evidence[some], y[some])
    assert living.recent == whole[0].recent
    assert living.levels == whole[0].levels
    assert temperature == pytest.approx(whole[1])
    assert len(living.recent) == 200


def test_the_temperature_follows_the_stream() -> None:
    """From 1 to the one that a stream needs, which a fit to its last rows finds."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(6000, 5)))
    y = torch.distributions.Categorical(logits=logits).sample()
    evidence = 4 * logits  # too sure by a factor of four
    temperature, living = 1.0, Living.of(torch.zeros(10))
    _, temperature = living.follow(temperature, torch.zeros(6000), evidence, y)
    assert temperature == pytest.approx(fit_temperature(evidence[-2000:], y[-2000:]), rel=0.15)


def test_impossible_classes_do_not_stop_the_temperature() -> None:
    evidence = torch.tensor([[0.0, -torch.inf], [1.0, 0.0]]).repeat(BLOCK, 1)
    y = torch.tensor([1, 0]).repeat(BLOCK)
    _, temperature = Living.of(torch.zeros(3)).follow(1.0, torch.zeros(2 * BLOCK), evidence, y)
    assert np.isfinite(temperature)
    assert temperature < 1


def living_head(name: str, **options: Any) -> tuple[Head, Tensor, Tensor]:
    z, y = blobs(200, seed=3)
    head = make_head(name, H, **options)
    for _ in range(head.passes or 20):
        head.observe(z[:200], y[:200])
    head.calibrate(z[200:400], y[200:400], living=True)
    return head, z[400:], y[400:]


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_learns_can_go_on_saying_that_it_does_not_know(name: str) -> None:
    """Each row is judged by the head and the limits as they were before it was learned."""
    head, z, y = living_head(name)
    living, temperature = head.calibration.living, head.temperature  # type: ignore[union-attr]
    for rows, own in batches(z, y, 50):
        answers = head.predict(rows, unknown=0.05)
        logits, novelty = head.judge(rows)
        assert (answers == -1).tolist() == (novelty > head.limit(0.05)).tolist()
        living, temperature = living.follow(temperature, novelty, head._evidence(logits), own)
        head.observe(rows, own)
        assert head.calibration == replace(
            head.calibration, living=living, temperature=temperature, stale=False
        )
    assert living.rows == 200
    assert head.probabilities(z).isfinite().all()


def test_the_limit_follows_a_head_and_its_stream() -> None:
    """A stream that moves away: a limit of old would turn four times as much of it away."""
    head, z, y = living_head("slda")
    before, away = head.limit(0.05), []
    for seed in range(40):
        z, y = blobs(10, seed=seed)
        z = z * (1 + seed / 20)
        away.append((head.predict(z, unknown=0.05) == -1).double().mean().item())
        head.observe(z, y)
    assert np.mean(away) < 0.08
    assert (head.novelty(z) > before).double().mean() > 0.15


def test_rows_of_classes_not_learned_are_no_feedback() -> None:
    head, z, y = living_head("mean")
    head.observe(z[:10], torch.full((10,), 7))
    assert head.calibration.living.rows == 0  # type: ignore[union-attr]
    head.observe(z[:10], torch.where(y[:10] == 0, 9, y[:10]))
    assert head.calibration.living.rows == int((y[:10] != 0).sum())  # type: ignore[union-attr]


def test_after_an_error_it_is_as_before() -> None:
    head, z, y = living_head("slda")
    before = head.calibration
    bad = z[:60].clone()
    bad[50, 1] = torch.nan
    with pytest.raises(DataError):
        head.observe(bad, y[:60])
    with pytest.raises(DataError):
        head.observe_all([(z[:20], y[:20]), (bad, y[:60])])
    assert head.calibration == before


def test_forgetting_marks_it_and_merging_makes_it_out_of_date() -> None:
    head, z, y = living_head("slda", per_class_scatter=True)
    head.observe(z[:50], y[:50])
    other = make_head("slda", H, per_class_scatter=True)
    other.observe(z[50:], y[50:])
    with pytest.raises(NotCalibratedError):
        head.merge(other).limit(0.05)
    limit = head.limit(0.05)
    head.forget(z[:5], y[:5])
    assert head.calibration.living.forgot  # type: ignore[union-attr]
    assert head.limit(0.05) == limit
    head.forget_class(2)
    assert not head.calibration.stale  # type: ignore[union-attr]
    assert "traces of forgotten rows" in describe_calibration(head.calibration)  # type: ignore[arg-type]


def test_a_file_keeps_it(tmp_path: Path) -> None:
    head, z, y = living_head("slda")
    head.observe(z[:70], y[:70])
    head.save(tmp_path / "head.safetensors")
    again = ll.load_head(tmp_path / "head.safetensors")
    assert again.calibration == head.calibration
    head.observe(z[70:], y[70:])
    again.observe(z[70:], y[70:])
    assert again.limit(0.1) == pytest.approx(head.limit(0.1))


def test_only_the_usual_shares_are_followed() -> None:
    head, _, _ = living_head("slda")
    assert head.limit(0.1) <= head.limit(0.05) <= head.limit(0.01)
    with pytest.raises(OptionError, match=r"follows the shares .* got 0.2"):
        head.limit(0.2)
    assert head.as_module(unknown=0.05)(blobs(2)[0])[0].shape == (6,)


@pytest.mark.parametrize("change", [
    {"recent": []}, {"levels": [0.1]}, {"recent": ["x"]}, {"slope": float("nan")}, {"more": 1},
])  # fmt: skip
def test_what_no_calibration_wrote_is_refused(change: dict[str, Any]) -> None:
    document = living_head("mean")[0].calibration.document()  # type: ignore[union-attr]
    document["living"] |= change
    with pytest.raises(FileFormatError):
        Calibration.read(document)


def test_rows_shown_again_are_fed_back_once() -> None:
    """A head trained by gradient sees the rows of a call in several epochs."""
    (z, y), (fresh, of) = blobs(60, seed=1), blobs(60, seed=2)
    clf = ll.HeadClassifier("linear", random_state=0, epochs=3).fit(z.numpy(), y.numpy())
    clf.calibrate(fresh.numpy(), of.numpy(), living=True)
    clf.partial_fit(z.numpy(), y.numpy())
    assert clf.head_.calibration.living.rows == len(y)
    clf.head_.observe(z[:7].double(), y[:7])
    assert clf.head_.calibration.living.rows == len(y) + 7


def test_the_window_is_bounded() -> None:
    living = Living.of(torch.arange(5000.0))
    assert len(living.recent) == RECENT
    rows = torch.zeros(1500)
    living, _ = living.follow(1.0, rows, rows[:, None], rows.long())
    assert living.recent == (0.0,) * RECENT
