"""A snapshot answers as its head did, and nothing that the head learns later reaches it."""

import numpy as np
import pytest
import torch
from live_streams import begun, made_up

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.live.snapshot import Snapshot, frozen
from lastlayer.live.store.entry import FORGET, LEARN, Entry
from lastlayer.live.working import Working


def options_of(head: str) -> dict[str, object]:
    return {"width": 30} if head.startswith("random_") else {}


@pytest.mark.parametrize("head", HEADS)
def test_it_answers_as_the_head_and_stays_as_it_is(head: str) -> None:
    clf = begun(head, **options_of(head))
    z, _ = made_up(30, 1)
    working = Working(clf)
    snapshot = Snapshot(frozen(clf), 7, None, None)
    labels, probable = clf.predict(z).tolist(), clf.predict_proba(z).max(axis=1)
    answer = snapshot.answer(z)
    assert (answer.labels, answer.through) == (labels, 7)
    np.testing.assert_allclose(answer.probabilities, probable, rtol=1e-12)
    working.apply(Entry(LEARN, z[:8], tuple("abcdefgh")))
    if clf.head_.abilities.forgets:
        working.apply(Entry(FORGET, z[:2], ("a", "b")))
    assert snapshot.answer(z) == answer


@pytest.mark.parametrize("head", ["ridge", "random_slda", "knn"])
def test_asking_a_snapshot_leaves_the_head_to_the_bit(head: str) -> None:
    asked, alone = (Working(begun(head, **options_of(head))) for _ in range(2))
    z, y = made_up(12, 2)
    for row, label in zip(z, y, strict=True):
        for working in (asked, alone):
            working.apply(Entry(LEARN, row[None], (label,)))
        alone.fold()
        Snapshot(frozen(asked.clf), 1, None, None).answer(z)
    ours, theirs = asked.head.state_dict(), alone.head.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_it_turns_away_what_is_strange_by_the_last_calibration() -> None:
    z, y = made_up(200, 3)
    clf = ll.HeadClassifier("slda", calibration=0.5, random_state=0).fit(z, y)
    limit = clf.head_.limit(0.1)
    Working(clf).apply(Entry(LEARN, z[:1], ("c0",)))
    snapshot = Snapshot(frozen(clf), 1, 0.1, 0)
    far = np.full((1, 5), 99.0)
    assert snapshot.answer(far).labels == [None]
    assert (snapshot.limit, snapshot.calibrated) == (limit, 0)
    near = [np.full((1, 5), 3.0 * c) for c in range(3)]
    assert snapshot.answer(np.concatenate(near)).labels == ["c0", "c1", "c2"]


def test_it_holds_no_scatter() -> None:
    snapshot = Snapshot(frozen(begun("slda")), 1, None, None)
    assert snapshot._head.statistics.scatter.numel() == 0
