"""A row that would ruin the sums of all rows before is refused, and learned by no head above."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lastlayer import HeadClassifier, make_head
from lastlayer.errors import DataError
from lastlayer.heads.too_large import refuse_too_large, squares_learned
from lastlayer.live import LiveHead

N, H = 90, 4
Y = np.arange(N) % 3
Z = np.random.default_rng(0).normal(size=(N, H)) + 3 * np.eye(3, H)[Y]
LENGTH = float(np.sqrt((Z**2).sum()))
FAR = np.full((1, H), 1e30)
SUMS: dict[str, dict[str, Any]] = {
    "mean": {}, "slda": {}, "ridge": {}, "qda": {"diagonal": True}, "sampled_linear": {},
    "random_ridge": {"width": 12}, "slda as it came": {},
}  # fmt: skip


def made(name: str) -> HeadClassifier:
    options = SUMS.get(name) or None
    clf = HeadClassifier(name.partition(" ")[0], options=options, random_state=0)
    return clf.fit(Z, Y) if " " not in name else fitted_in_pieces(clf)


def fitted_in_pieces(clf: HeadClassifier) -> HeadClassifier:
    for row in range(N):  # rows that wait count too
        clf.partial_fit(Z[[row]], Y[[row]], classes=np.arange(3))
    return clf


@pytest.mark.parametrize("name", SUMS)
def test_a_row_that_would_ruin_all_before_is_refused(name: str) -> None:
    clf = made(name)
    before = clf.predict_proba(Z)
    with pytest.raises(DataError, match=r"row 1 is .* times as long as all rows learned before"):
        clf.partial_fit(np.concatenate([Z[:1], FAR]), [0, 0])
    np.testing.assert_array_equal(clf.predict_proba(Z), before)


@pytest.mark.parametrize(("times", "refused"), [(3e4, False), (8e4, True)])
def test_the_limit_is_where_forgetting_would_fail(times: float, refused: bool) -> None:
    """What is learned can be forgotten again, as exactly as ``forget`` promises."""
    clf, far = made("slda"), np.eye(1, H) * times * LENGTH
    if refused:
        with pytest.raises(DataError, match="leave it out, or scale it"):
            clf.partial_fit(far, [0])
        clf.head_.observe(torch.from_numpy(far), torch.tensor([0]))
        with pytest.raises(DataError, match="cannot forget exactly"):
            clf.forget(far, [0])
    else:
        clf.partial_fit(far, [0]).forget(far, [0])
        assert clf.score(Z, Y) == made("slda").score(Z, Y)


@pytest.mark.parametrize("name", ["knn", "linear", "random_slda"])
def test_heads_that_such_a_row_does_not_ruin_learn_it(name: str) -> None:
    rows = np.random.default_rng(1).normal(size=(N, 64))
    clf = HeadClassifier(name, random_state=0).fit(rows, Y)
    clf.partial_fit(np.full((1, 64), 1e12), [0])


def test_few_rows_or_none_are_no_measure() -> None:
    head = make_head("mean", in_features=1)
    assert squares_learned(head) == 0
    head.observe(torch.full((19, 1), 1e-9), torch.zeros(19, dtype=torch.int64))
    refuse_too_large(head, torch.tensor([[1.0]]), squares_learned(head))
    head.observe(torch.full((1, 1), 1e-9), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(DataError, match="row 7 is"):
        refuse_too_large(head, torch.tensor([[1.0]]), squares_learned(head), 7)


@pytest.mark.parametrize("name", ["slda", "random_ridge"])
def test_a_live_head_refuses_it_and_goes_on(name: str, tmp_path: Path) -> None:
    with LiveHead(made(name), tmp_path / "store", fresh=0) as live:
        before = live.predict(Z).probabilities
        with pytest.raises(DataError, match=r"row 0 is .* times as long"):
            live.learn(FAR, ["0"])
        live.predict(FAR, id="strange")
        with pytest.raises(DataError, match=r"row 0 is .* times as long"):
            live.label("strange", "0")
        np.testing.assert_array_equal(live.predict(Z).probabilities, before)
        live.learn(Z[:2], ["0", "1"])
        live.forget(Z[:2], ["0", "1"])
