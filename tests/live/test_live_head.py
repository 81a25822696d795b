"""What a live head promises to those who use it: order, names, labels that come later, bounds."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from live_streams import begun, made_up

import lastlayer as ll
from lastlayer.errors import (
    DataError,
    LabelError,
    MissingFileError,
    NotLearnedError,
    NotWaitingError,
    OptionError,
    ShapeError,
    TakenError,
    UnsupportedError,
)
from lastlayer.live import LiveHead, writer
from lastlayer.live.service.about import score_of
from lastlayer.live.store import head_store as store
from lastlayer.live.store.entry import DROP, Entry


@pytest.mark.parametrize("head", ["slda", "ridge", "random_ridge", "knn", "cosine+single"])
def test_it_ends_as_the_head_that_learned_the_same(head: str, folder: Path) -> None:
    options = {"width": 30} if head == "random_ridge" else {}
    z, y = made_up(40, 1)
    offline = begun(head, **options)
    with LiveHead(begun(head, **options), folder, fresh=0) as live:
        for row, label in zip(z, y, strict=True):
            live.learn(row[None], [label])
            c = offline.labels_.classes_of(np.array([label]), torch.zeros(1, dtype=torch.int64))
            offline.head_.observe(torch.from_numpy(row[None]), c)
        answer = live.predict(z)
    assert answer.through == 40
    expected = offline.predict_proba(z).max(axis=1)
    np.testing.assert_allclose(answer.probabilities, expected, rtol=1e-9)
    again = ll.HeadClassifier.load(folder / "head.safetensors")
    assert again.head_.records["change"] == 40
    np.testing.assert_allclose(again.predict_proba(z).max(axis=1), expected, rtol=1e-9)


def test_forgetting_is_as_never_having_learned() -> None:
    z, y = made_up(20, 1)
    with LiveHead(begun(), fresh=0) as live, LiveHead(begun(), fresh=0) as never:
        live.learn(z, y)
        live.forget(z[5:], y[5:])
        never.learn(z[:5], y[:5])
        ours, theirs = live.predict(z), never.predict(z)
    np.testing.assert_allclose(ours.probabilities, theirs.probabilities, rtol=1e-9)


def test_relabelling_is_as_having_learned_the_other_label() -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), fresh=0) as live, LiveHead(begun(), fresh=0) as right:
        live.learn(z, y)
        assert live.relabel(z[:1], y[:1], ["new"])["change"] == 2
        right.learn(z, ["new", *y[1:]])
        assert live.predict(z).labels == right.predict(z).labels
        with pytest.raises(DataError, match="another label"):
            live.relabel(z[1:2], y[1:2], y[1:2])
        with pytest.raises(DataError):
            live.relabel(1e6 + z[1:2], y[1:2], ["other"])
        assert live.predict(z).labels == right.predict(z).labels


def test_a_name_asked_again_changes_nothing(folder: Path) -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), folder) as live:
        first = live.learn(z, y, request="r9")
        assert live.learn(z, y, request="r9") == first
        with pytest.raises(TakenError, match="r9"):
            live.learn(z[:3], y[:3], request="r9")
        with pytest.raises(TakenError):
            live.forget(z, y, request="r9")
    with LiveHead(None, folder) as live:
        assert live.learn(z, y, request="r9") == first
        assert live.change == 1
        gone = live.forget(z, y, request="f3")
        assert live.forget(z, y, request="f3") == gone
        assert live.learn(z, y)["change"] == 3


def test_a_label_that_comes_later(folder: Path) -> None:
    z, y = made_up(4, 1)
    with LiveHead(begun(), folder, fresh=0) as live:
        answer = live.predict(z[:1], id="a17", note="photos/17.jpg")
        assert live.predict(z[:1], id="a17") == answer
        with pytest.raises(TakenError):
            live.predict(z[1:2], id="a17")
        with pytest.raises(ShapeError, match="one row"):
            live.predict(z, id="a18")
    with LiveHead(None, folder, fresh=0) as live:  # it survives
        (waiting,) = live.review()
        assert (waiting.id, waiting.note) == ("a17", "photos/17.jpg")
        receipt = live.label("a17", y[0])
        assert live.label("a17", y[0]) == receipt == {"change": 1, "rows": 1, "fresh_through": 0}
        with pytest.raises(TakenError, match="POST /relabel corrects a label"):
            live.label("a17", "owl")
        with pytest.raises(TakenError):
            live.predict(z[:1], id="a17")
        with pytest.raises(TakenError, match="has its label"):
            live.drop("a17")
        with pytest.raises(NotWaitingError):
            live.label("a18", "owl")
        live.predict(z[:1], id="a19")
        assert live.drop("a19") == {"dropped": "a19"}
        with pytest.raises(NotWaitingError):
            live.label("a19", "owl")
        assert live.review() == []
        score = live.store.fact("score")
        assert (score["answers"], score["right"]) == (1, int(answer.labels[0] == y[0]))
        assert (score["told"], score["sure"]) == (1, answer.probabilities[0])


def test_how_sure_answers_are_leaves_out_what_was_turned_away() -> None:
    clf = ll.HeadClassifier("slda", calibration=0.5, random_state=0).fit(*made_up(200, 3))
    with LiveHead(clf, unknown=0.1) as live:
        near = live.predict(np.zeros((1, 5)), id="near")
        assert live.predict(np.full((1, 5), 99.0), id="far").labels == [None]
        live.label("near", near.labels[0])
        live.label("far", near.labels[0])
        score = score_of(live)
    assert score is not None
    assert (score["answers"], score["right"], score["told"]) == (2, 1, 1)
    assert score["sure"] == pytest.approx(near.probabilities[0])


def test_what_is_strange_or_close_is_reviewed_first() -> None:
    z = np.concatenate([np.full((1, 5), v) for v in (0.0, 0.9, 99.0)])
    clf = ll.HeadClassifier("slda", calibration=0.5, random_state=0).fit(*made_up(200, 3))
    with LiveHead(clf, unknown=0.1) as live:
        for place, row in enumerate(z):
            live.predict(row[None], id=f"a{place}")
        assert [one.id for one in live.review(2)] == ["a2", "a1"]


@pytest.mark.parametrize("h", [5, 64])
def test_near_copies_are_not_reviewed_one_after_the_other(h: int) -> None:
    """The least sure rows are nearly the same: one of them is enough."""
    random = np.random.default_rng(0)
    z, y = np.repeat(random.normal(size=(2, h)), 50, axis=0), ["a"] * 50 + ["b"] * 50
    clf = ll.HeadClassifier("slda").fit(z + random.normal(size=z.shape), y)
    others = z[[0, 50]].mean(axis=0) + 0.5 * random.normal(size=(8, h))
    p = np.sort(clf.predict_proba(others), axis=1)
    closest = others[(p[:, -1] - p[:, -2]).argmin()]
    copies = closest + 1e-4 * random.normal(size=(10, h))
    with LiveHead(clf) as live:
        for place, row in enumerate([*copies, *others]):
            live.predict(row[None], id=f"a{place}")
        found = [int(one.id[1:]) for one in live.review(4)]
        assert sum(place < 10 for place in found) == 1
        assert len(live.review(40)) == len(live.review(18)) == 18


def test_rows_wait_so_long_and_no_longer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    z, _ = made_up(3, 1)
    with LiveHead(begun(), folder, most_pending=2, pending=60) as live:
        for place in range(3):
            live.predict(z[place : place + 1], id=f"a{place}")
        assert {one.id for one in live.review()} == {"a1", "a2"}
        later = live.store.now() + 61
        monkeypatch.setattr(live.store, "now", lambda: later)
        live.learn(z, ["c0"] * 3)
        assert live.review() == []


def test_bounds_on_new_labels(folder: Path) -> None:
    z, _ = made_up(3, 1)
    with LiveHead(begun(), folder, labels=1) as live:
        live.learn(z[:1], ["owl"])
        with pytest.raises(LabelError, match="at most 4 labels"):
            live.learn(z, ["c0", "owl", "elk"])
        assert live.learn(z[:2], ["c0", "owl"])["change"] == 2
    with LiveHead(None, folder, labels=1) as live, pytest.raises(LabelError):
        live.learn(z[:1], ["elk"])  # counted from the beginning of the store
    with LiveHead(None, folder, labels="known") as live, pytest.raises(LabelError):
        live.learn(z[:1], ["elk"])


@pytest.mark.parametrize(
    ("rows", "labels", "error"),
    [
        ([[np.nan] * 5], ["c0"], DataError),
        ([[1.0] * 4], ["c0"], ShapeError),
        ([[1.0] * 5, [1.0]], ["c0", "c0"], ShapeError),
        ([["x"] * 5], ["c0"], DataError),
        ([[1.0] * 5], [], ShapeError),
        ([[1.0] * 5], [1.5], LabelError),
        ([[1.0] * 5], [""], LabelError),
        ([[1.0] * 5], ["\ud800"], LabelError),
        ([], [], DataError),
    ],
)
def test_what_cannot_be_learned_is_refused(rows: list, labels: list, error: type) -> None:
    with LiveHead(begun()) as live:
        with pytest.raises((error, ShapeError)):
            live.learn(rows, labels)
        assert live.change == 0


def test_a_refusal_drops_out_of_its_group() -> None:
    z, y = made_up(8, 1)
    with LiveHead(begun(), labels=0) as live:
        gate = threading.Event()
        live.writer.order(gate.wait)  # so that what follows comes as one group
        asks = [live.ask("learn", z[i : i + 1], [label], request=f"r{i % 6}")
                for i, label in enumerate([*y[:3], "new", *y[4:6], *y[:2]])]  # fmt: skip
        gate.set()
        done = [ask.exception() or ask.result()["change"] for ask in asks]
    assert done[:3] == [1, 2, 3]
    assert isinstance(done[3], LabelError)
    assert done[4:6] == [4, 5]
    assert [type(one) for one in done[6:]] == [TakenError, TakenError]


def test_labels_keep_their_type() -> None:
    clf = ll.HeadClassifier("mean").fit([[0.0], [9.0]], [3, 7])
    with LiveHead(clf, fresh=0) as live:
        live.learn([[4.0]], [5])
        assert live.predict([[4.0], [9.0]]).labels == [5, 7]
        with pytest.raises(LabelError):
            live.learn([[4.0]], ["owl"])
    assert clf.classes_.tolist() == [3, 7]  # the live head has a copy


def test_many_threads_and_one_head() -> None:
    z, y = made_up(200, 1)
    with LiveHead(begun(), fresh=0.01) as live:

        def client(number: int) -> None:
            for place in range(number, len(z), 4):
                assert live.predict(z[place : place + 1]).through <= live.change
                live.learn(z[place : place + 1], [y[place]])

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert live.change == 200
        assert live.refresh() == 200
        assert live.snapshot.rows == 260


def test_heads_that_cannot_forget_say_so() -> None:
    with LiveHead(begun("linear")) as live, pytest.raises(UnsupportedError):
        live.forget(*made_up(1))


def test_a_head_that_has_learned_nothing(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "empty.safetensors"
    ll.make_head("mean", in_features=5).save(file)
    with LiveHead(file, folder, fresh=0) as live:
        with pytest.raises(NotLearnedError):
            live.predict(made_up(1)[0])
        live.learn(made_up(1)[0], [0])
        assert live.predict(made_up(1)[0]).labels == [0]


def test_a_store_goes_on_from_itself_and_refuses_another_head(folder: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    begun().save(one)
    begun("mean").save(other)
    with pytest.raises(MissingFileError, match="name the file"):
        LiveHead(None, folder)
    LiveHead(one, folder).close()
    LiveHead(one, folder).close()
    with pytest.raises(OptionError, match="goes on from another head"):
        LiveHead(other, folder)


def test_relabelling_brings_no_more_labels_than_may_come() -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), labels=1, fresh=0) as live:
        live.learn(z, y)
        live.relabel(z[:1], y[:1], ["owl"])
        for new in ("elk", "", "x" * 5000):
            with pytest.raises(LabelError):
                live.relabel(z[1:2], y[1:2], [new])
        assert live.change == 2


def test_an_id_that_is_dropped_may_wait_again_at_once(folder: Path) -> None:
    z, y = made_up(4, 1)
    with LiveHead(begun(), folder, fresh=0) as live:
        answer = live.predict(z[:1], id="a")
        gate = threading.Event()
        live.writer.order(gate.wait)  # so that what follows comes as one group
        dropped = live.writer.ask(Entry(DROP, request="a"))
        again = live.let_wait(z[1:2], answer, "a", None)
        gate.set()
        assert dropped.result() == {"dropped": "a"}
        assert again.result() == {}
        assert [one.id for one in live.review()] == ["a"]
        assert live.label("a", y[1])["change"] == 1


def test_a_change_that_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = made_up(40, 1)
    with LiveHead(begun()) as live:
        monkeypatch.setattr(writer, "MOST_BYTES", 1000)
        with pytest.raises(DataError, match="send it in parts"):
            live.learn(z, y)
        assert live.learn(z[:1], y[:1])["change"] == 1


def test_so_many_names_are_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NAMES", 2)
    z, y = made_up(3, 1)
    with LiveHead(begun(), folder) as live:
        for name in ("a", "b", "c"):
            live.learn(z, y, request=name)
        assert live.learn(z, y, request="b")["change"] == 2
        assert live.learn(z, y, request="a")["change"] == 4  # forgotten: learned once more
