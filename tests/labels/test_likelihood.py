"""The likelihood of labels: its slopes are those of differences, its maximum that of SciPy."""

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad, minimize
from wrong_labels import draw

from lastlayer.heads import make_head
from lastlayer.labels.likelihood import LIMITS, Likelihood
from lastlayer.labels.noise import Noise


def rows(votes: bool, rate: float = 0.08) -> Likelihood:
    drawn = draw(300, 4, 6, apart=0.7, rate=rate)
    head = make_head("slda", 6)
    head.observe(drawn.z, drawn.y)
    logits = head.leave_one_out(drawn.z, drawn.y)
    logits = logits - logits.amax(dim=1, keepdim=True)
    random = np.random.default_rng(0)
    pairs = random.random((4, 4)) * (1 - np.eye(4))
    pairs *= 4 / pairs.sum()
    said = random.normal(size=(300, 4)) if votes else None
    return Likelihood(logits.numpy(), drawn.y.numpy(), pairs, said)


@pytest.mark.parametrize("votes", [False, True])
def test_slopes_are_those_of_differences(votes: bool) -> None:
    some = rows(votes)
    for place in ((0.3, -2.0, 0.5, -0.4), (-1.0, 1.9, 3.0, 0.5), (0.0, -6.0, -2.0, -3.0)):
        x = np.array(place[: 3 + votes])
        wrong = check_grad(lambda x: some.look(x).surprise, lambda x: some.look(x).slope, x)
        assert wrong < 1e-3 * (1 + np.abs(some.look(x).slope).max())


@pytest.mark.parametrize("votes", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3])
def test_the_maximum_is_that_of_scipy(votes: bool, rate: float) -> None:
    some = rows(votes, rate)
    start = np.array([0.0, -3.0, 0.0, -1.0][: 3 + votes])
    x, at = some.best(start)
    limits = LIMITS[: len(start)]
    expected = minimize(lambda x: some.look(x).surprise, x, method="L-BFGS-B", bounds=limits)
    assert at.surprise == pytest.approx(float(expected.fun), abs=0.02)
    fixed = some.best(start, fixed=(1,))[0]
    assert fixed[1] == -3.0
    assert some.best(start, fixed=(1,))[1].surprise >= at.surprise - 1e-3


def test_the_maximum_is_found_where_each_class_is_taken_for_one_other() -> None:
    """There Fisher's curvature is far from that of the likelihood."""
    drawn = draw(600, 6, 6, apart=2.5)
    other = torch.tensor([1, 0, 3, 2, 5, 4])[drawn.truth]
    y = torch.where(torch.arange(600) % 15 == 0, other, drawn.truth)
    head = make_head("slda", 6)
    head.observe(drawn.z, y)
    logits = head.leave_one_out(drawn.z, y)
    pairs = 0.02 * (1 - np.eye(6)) + 0.9 * np.eye(6)[[1, 0, 3, 2, 5, 4]]
    some = Likelihood((logits - logits.amax(dim=1, keepdim=True)).numpy(), y.numpy(), pairs)
    x, at = some.best(np.array([0.0, -3.0, 0.0]))
    expected = minimize(
        lambda x: some.look(x).surprise, x, jac=lambda x: some.look(x).slope, method="L-BFGS-B",
        bounds=LIMITS[:3],
    )  # fmt: skip
    assert at.surprise == pytest.approx(float(expected.fun), abs=1e-3)


def test_the_share_is_that_of_the_model() -> None:
    drawn = draw(400, 4, 6, apart=0.7, rate=0.1)
    head = make_head("slda", 6)
    head.observe(drawn.z, drawn.y)
    logits = head.leave_one_out(drawn.z, drawn.y)
    noise = Noise.fit(logits, drawn.y)
    wrong = noise.wrong(noise.probabilities(logits), drawn.y).sum(dim=1)
    assert noise.mean(logits, drawn.y) == pytest.approx(float(wrong.mean()))
    assert noise.share[1] == pytest.approx(float(wrong.mean()), rel=1e-6)


def test_of_two_explanations_the_likelier_is_found() -> None:
    """Clear rows are contradicted as often as others: that is noise, and no temperature."""
    logits = torch.tensor([[0.0, -1.0, -1.0]]) * torch.linspace(4, 40, 500).double()[:, None]
    y = torch.zeros(500, dtype=torch.int64)
    y[7::50], y[31::50] = 1, 2
    noise = Noise.fit(logits, y)
    assert noise.share[1] == pytest.approx(0.04, abs=0.005)
