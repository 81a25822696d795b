"""The noise model: its interval holds, and without wrong labels it finds hardly any."""

import numpy as np
import pytest
import torch
from torch import Tensor
from wrong_labels import Drawn, draw

from lastlayer.heads import make_head
from lastlayer.labels.noise import Noise

OVERLAP, SOME, LITTLE = 0.4, 0.6, 1.0  # about 65, 80 and 98 % can be told


def logits_of(drawn: Drawn) -> Tensor:
    head = make_head("slda", drawn.z.shape[1])
    head.observe(drawn.z, drawn.y)
    return head.leave_one_out(drawn.z, drawn.y)


def found(drawn: Drawn) -> tuple[Tensor, tuple[float, float]]:
    logits = logits_of(drawn)
    noise = Noise.fit(logits, drawn.y)
    wrong = noise.wrong(noise.probabilities(logits), drawn.y).sum(dim=1)
    return wrong, noise.interval(wrong)


def held(draws: int, **how: float) -> float:
    """Return how often the number of wrong labels is in its interval."""
    inside = 0
    for seed in range(draws):
        drawn = draw(1500, 6, 12, seed=seed, **how)  # type: ignore[arg-type]
        low, high = found(drawn)[1]
        inside += low <= int(drawn.wrong.sum()) <= high
    return inside / draws


@pytest.mark.parametrize(("apart", "rate"), [(SOME, 0.05), (LITTLE, 0.2)])
def test_the_interval_holds(apart: float, rate: float) -> None:
    assert held(10, apart=apart, rate=rate) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("apart", [OVERLAP, SOME, LITTLE])
@pytest.mark.parametrize(("rate", "alike"), [(0.02, 0.0), (0.05, 0.0), (0.05, 0.5), (0.2, 0.0)])
def test_the_interval_holds_in_nine_of_ten_of_200_draws(
    apart: float, rate: float, alike: float
) -> None:
    assert held(200, apart=apart, rate=rate, alike=alike) >= 0.9


@pytest.mark.parametrize("apart", [OVERLAP, SOME, LITTLE])
def test_hardly_any_right_label_is_taken_for_a_wrong_one(apart: float) -> None:
    """However much classes overlap: a label that is not the likeliest is no error for that."""
    shares = [float((found(draw(2000, 6, 12, apart=apart, seed=s))[0] > 0.5).double().mean())
              for s in range(2)]  # fmt: skip
    assert max(shares) < 0.01


def test_wrong_labels_are_found_with_what_they_should_be() -> None:
    drawn = draw(2000, 6, 12, apart=1.5, rate=0.1)
    logits = logits_of(drawn)
    noise = Noise.fit(logits, drawn.y)
    joint = noise.wrong(noise.probabilities(logits), drawn.y)
    suspects = joint.sum(dim=1) > 0.5
    assert (suspects == drawn.wrong).double().mean() > 0.995
    assert (joint.argmax(dim=1) == drawn.truth)[drawn.wrong].double().mean() > 0.97
    assert abs(noise.rate - 0.1) < 0.02


def test_probabilities_of_being_wrong_are_the_models_by_hand() -> None:
    drawn = draw(200, 3, 4, rate=0.1)
    logits = logits_of(drawn)
    noise = Noise.fit(logits, drawn.y)
    log_tau, rate, alike = noise.numbers.tolist()
    rate, alike = (1 / (1 + np.exp(-x)) for x in (rate, alike))
    scaled = logits.numpy() / (noise.temperature * np.exp(log_tau))
    p = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    kinds = (1 - alike) * (1 - np.eye(3)) / 2 + alike * noise.pairs.numpy()
    joint = noise.wrong(noise.probabilities(logits), drawn.y).numpy()
    for row in range(20):
        y = int(drawn.y[row])
        right = 1 - rate * kinds[y].sum()
        whole = right * p[row, y] + rate * sum(p[row, c] * kinds[c, y] for c in range(3))
        for c in range(3):
            assert joint[row, c] == pytest.approx(rate * p[row, c] * kinds[c, y] / whole)


def test_impossible_classes_are_only_unlikely() -> None:
    """The votes of neighbours leave most classes without any."""
    drawn = draw(600, 4, 6, rate=0.1)
    head = make_head("knn", 6, k=3)
    head.observe(drawn.z, drawn.y)
    logits = head.leave_one_out(drawn.z, drawn.y)
    assert (logits == -torch.inf).any()
    noise = Noise.fit(logits, drawn.y)
    wrong = noise.wrong(noise.probabilities(logits), drawn.y)
    assert wrong.isfinite().all()
    assert 0.05 < noise.rate < 0.3


def test_what_all_logits_of_a_row_share_decides_nothing() -> None:
    drawn = draw(400, 3, 5, rate=0.1)
    logits = logits_of(drawn)
    shifted = logits + 1000 + 50 * torch.arange(len(logits))[:, None]
    one, other = (Noise.fit(each, drawn.y) for each in (logits, shifted))
    p, q = one.probabilities(logits), other.probabilities(shifted)
    torch.testing.assert_close(other.wrong(q, drawn.y), one.wrong(p, drawn.y), rtol=1e-3, atol=1e-6)
