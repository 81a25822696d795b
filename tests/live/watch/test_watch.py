"""A watch: what it sees is true, what it says follows, and what it remembers is whole."""

import json
import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import lastlayer as ll
from lastlayer.cli import app
from lastlayer.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    LabelError,
    LastLayerError,
    MergeError,
    NotCalibratedError,
    OptionError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head
from lastlayer.heads.watch_reference import DIRECTIONS, REACH, Reference, ahead, projected, rank
from lastlayer.live.watch.betting import unspent
from lastlayer.live.watch.on_alarm import tell
from lastlayer.live.watch.rules import RECENT
from lastlayer.live.watch.verdicts import Finding, Size, look_alike, say_strange
from lastlayer.live.watch.watch import Alarm, Watch
from lastlayer.live.watch.watch_page import watch_page
from undrawn import leave_out_the_renderer

C, H = 4, 6


def blobs(n: int, seed: int, shift: float = 0, of: int | None = None) -> tuple[Tensor, Tensor]:
    """Draw rows of four classes; those of one, or of all, may be shifted along every feature."""
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    z = rng.standard_normal((n, H)) + 3 * np.eye(C, H)[y]
    z[y == of if of is not None else slice(None)] += shift
    return torch.from_numpy(z), torch.from_numpy(y)


def calibrated(name: str = "slda", living: bool = False) -> Head:
    head = ll.make_head(name, H)
    head.observe(*blobs(400, 0))
    head.calibrate(*blobs(800, 1), living)
    return head


def asked(alarms: tuple[Alarm, ...]) -> list[str]:
    return [alarm.question for alarm in alarms]


def test_without_a_change_there_is_no_alarm() -> None:
    watch = Watch(calibrated())
    assert watch.see(*blobs(5000, 2)) == ()
    report = watch.report()
    assert [verdict.alarm for verdict in report.verdicts] == [False] * 3
    assert [verdict.rows for verdict in report.verdicts] == [5000] * 3
    assert "no sign of it" in str(report)


def test_what_it_says_of_unchanged_rows_is_true() -> None:
    head = calibrated()
    z, y = blobs(3000, 2)
    watch = Watch(head)
    watch.see(z, y)
    worse, strange, _ = (verdict.sentences[0] for verdict in watch.report().verdicts)
    wrong = 100 * (head.predict(z) != y).double().mean().item()
    away = 100 * (head.novelty(z) > head.limit(0.05)).double().mean().item()
    assert worse.startswith(f"{wrong:.{1 if wrong < 10 else 0}f} % of 3,000 answers were wrong")
    assert strange.startswith(f"{away:.1f} % of 3,000 inputs are beyond the limit")


def test_labels_that_become_wrong_make_it_worse_and_nothing_strange() -> None:
    watch = Watch(calibrated())
    z, y = blobs(4000, 2)
    noisy = torch.where(torch.arange(4000) >= 2000, (y + (torch.arange(4000) % 3 == 0)) % C, y)
    alarms = {alarm.question: alarm for alarm in watch.see(z, noisy)}
    assert "worse" in alarms
    assert "strange" not in alarms
    assert 2000 < alarms["worse"].row < 2200
    found = watch.report().verdicts[0].finding
    assert found is not None
    assert found.first <= 2000 <= found.last
    wrong = (watch.head.predict(z) != noisy).double()[found.since :].mean().item()
    assert found.size.share == pytest.approx(wrong)
    assert found.size.low < wrong < found.size.high
    assert found.size.usual < found.size.most < found.size.low


def test_strange_inputs_need_no_labels() -> None:
    watch = Watch(calibrated())
    watch.see(blobs(1000, 2)[0])
    assert asked(watch.see(blobs(500, 3, shift=3)[0])) == ["strange"]
    _, strange, _ = watch.report().verdicts
    assert strange.finding is not None
    assert abs(strange.finding.since - 1000) < 30
    said = str(watch.report())
    assert "Is the head getting worse? cannot tell: no labels so far" in said
    assert "Which class moved? cannot tell: no labels so far" in said
    assert "has seen no rows that have labels" in said


def test_a_watch_that_saw_nothing_cannot_tell() -> None:
    watch = Watch(calibrated())
    said = [verdict.answer for verdict in watch.report().verdicts]
    nothing = "cannot tell: no {} so far"
    assert said == [nothing.format(what) for what in ("labels", "rows", "labels")]
    page = watch_page(watch.report(), watch._state.questions, watch.rules)
    assert page.sections[2].title == "Which class moved? Cannot tell: no labels so far"
    assert page.answer == "There is no sign of any change. It cannot tell all: see below."


def test_scattered_inputs_and_a_spent_promise_are_told_in_plain_words() -> None:
    watch = Watch(calibrated())
    watch.see(*blobs(1000, 2))
    z, y = blobs(600, 3)
    watch.see(z + 9 * torch.randn(z.shape, generator=torch.Generator().manual_seed(0)), y)
    said = str(watch.report())
    assert re.search(r"at most \d+ of the last 32 that were turned away look alike", said)
    assert "the promise is spent: --reset (in Python reset()) makes it once more" in said
    assert "made with half_life=ROWS gives old rows ever less weight" in said


def test_the_class_that_moved_is_named_with_its_shift() -> None:
    head = calibrated()
    head.class_names = ["ant", "bee", "cat", "dog"]
    watch = Watch(head)
    watch.see(*blobs(1000, 2))
    z, y = blobs(2000, 3, shift=1.5, of=2)
    assert "moved" in asked(watch.see(z, y))
    moved = watch.report().verdicts[2]
    assert list(moved.classes) == ["cat"]
    found = moved.classes["cat"]
    assert found.shift is not None
    own = (y == 2).numpy()
    about = Reference.read(head.calibration.reference)  # type: ignore[union-attr,arg-type]
    far = (projected(z)[own].mean(0) - about.place[2]) / about.scale
    assert abs(found.shift.share) < 2 * REACH
    assert abs(found.shift.share) == pytest.approx(np.abs(far).max(), rel=0.4)
    beyond = (head.novelty(z).numpy()[own] > about.limit[2]).mean()
    assert found.size.share == pytest.approx(beyond, abs=0.05)


def test_batches_make_no_difference() -> None:
    rows = [blobs(900, 2), blobs(900, 3, shift=0.8)]
    z, y = (torch.cat(parts) for parts in zip(*rows, strict=True))
    for promise in ({"false_alarms": 0.1}, {"rows": 500}):
        whole = Watch(calibrated(), **promise)
        parts = Watch(calibrated(), **promise)
        first = whole.see(z, y)
        second = [a for begin in range(0, 1800, 77)
                  for a in parts.see(z[begin : begin + 77], y[begin : begin + 77])]  # fmt: skip
        assert sorted((a.question, a.row) for a in first) == sorted(
            (a.question, a.row) for a in second
        )
        assert first
        for one, other in zip(whole.report().verdicts, parts.report().verdicts, strict=True):
            assert (one.question, one.rows, one.row, one.alarms) == (
                other.question, other.rows, other.row, other.alarms
            )  # fmt: skip


def test_rows_between_alarms_begin_anew_and_the_other_promise_is_spent() -> None:
    z, y = blobs(300, 3, shift=3)
    often, once = Watch(calibrated(), rows=2000), Watch(calibrated())
    assert asked(often.see(z)) == ["strange"]
    assert asked(once.see(z)) == ["strange"]
    assert set(asked(once.see(z, y))) >= {"moved"}
    assert "promise is spent" in str(once.report())
    once.reset()
    assert not once.report().alarms
    assert asked(once.see(z)) == ["strange"]


def test_an_alarm_that_lasts_is_told_once_and_ends() -> None:
    """Bets that begin anew are won again after a few rows, as long as the change lasts."""
    watch = Watch(calibrated(), rows=300)
    usual, odd = blobs(400, 2)[0], blobs(300, 3, shift=3)[0]
    watch.see(usual[:100])
    (alarm,) = watch.see(odd)
    assert 100 < alarm.row < 120
    said = watch.report().verdicts[1]
    assert (said.alarm, said.row, said.alarms) == (True, alarm.row, 1)
    assert said.finding is not None
    assert said.finding.since <= alarm.row
    assert alarm.sentences == said.sentences
    watch.see(usual)
    said = watch.report().verdicts[1]
    assert (said.alarm, said.row, said.alarms) == (False, alarm.row, 1)
    assert f"The last alarm was at row {alarm.row}." in said.sentences
    assert asked(watch.see(odd)) == ["strange"]
    assert watch.report().verdicts[1].alarms == 2


def test_only_what_is_sure_is_said_of_a_class() -> None:
    """A class whose rows are answered as before has moved; that a few are wrong says nothing."""
    watch = Watch(calibrated())
    watch.see(*blobs(1000, 2))
    watch.see(*blobs(2000, 3, shift=1.5, of=2))
    (of_class,) = (s for s in watch.report().verdicts[2].sentences if s.startswith("class 2, "))
    found = watch.report().verdicts[2].classes["class 2"]
    assert found.errors is not None
    assert ("answered wrongly" in of_class) == (found.errors.low > found.errors.most)
    assert "moved by" in of_class


def test_a_tolerance_is_tolerated() -> None:
    z, y = blobs(4000, 2)
    noisy = torch.where(torch.arange(4000) % 5 == 0, (y + 1) % C, y)
    assert "worse" in asked(Watch(calibrated()).see(z, noisy))
    assert "worse" not in asked(Watch(calibrated(), tolerance=0.25).see(z, noisy))


def test_answers_that_were_given_are_what_is_scored() -> None:
    head = calibrated()
    z, y = blobs(600, 2)
    watch = Watch(head)
    watch.see(z)
    assert "worse" in asked(watch.see(z, y, answered=(y + 1) % C))
    assert [verdict.rows for verdict in watch.report().verdicts] == [600, 600, 600]
    with pytest.raises(ArgumentError, match="pass y as well"):
        watch.see(z, answered=y)


def test_new_classes_are_outside_the_promise() -> None:
    watch = Watch(calibrated())
    z, y = blobs(300, 2)
    watch.see(z, torch.where(y == 1, 9, y))
    worse, strange, moved = watch.report().verdicts
    new = int((y == 1).sum())
    assert (worse.rows, strange.rows, moved.rows) == (300 - new, 300, 300 - new)
    assert f"{new} rows are of classes that were not calibrated" in str(watch.report())


def test_a_file_keeps_what_a_watch_remembers(tmp_path: Path) -> None:
    for promise in ({"false_alarms": 0.1}, {"rows": 700}):
        head = calibrated()
        watch = Watch(head, **promise)
        watch.see(*blobs(900, 2))
        head.save(tmp_path / "head.safetensors")
        again = Watch(ll.load_head(tmp_path / "head.safetensors"))
        assert again.settings == watch.settings
        more = blobs(900, 3, shift=0.8)
        assert [(a.question, a.row) for a in again.see(*more)] == [
            (a.question, a.row) for a in watch.see(*more)
        ]
        assert again.report() == watch.report()
        assert again.head.records == head.records


def test_a_watch_with_other_promises_is_refused_unless_it_begins_anew() -> None:
    head = calibrated()
    Watch(head, 0.1, tolerance=0.02).see(*blobs(50, 2))
    assert Watch(head).settings == {"false_alarms": 0.1, "rows": None, "tolerance": 0.02}
    for other in ({"false_alarms": 0.2}, {"tolerance": 0.0}, {"rows": 1000}):
        with pytest.raises(OptionError, match="begin anew with reset=True"):
            Watch(head, **other)
    assert Watch(head, rows=1000, reset=True).report().verdicts[0].rows == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda w: w.pop("questions"), FileFormatError),
        (lambda w: w["questions"]["worse"]["wealth"].pop("stakes"), FileFormatError),
        (
            lambda w: w["questions"]["worse"]["wealth"]["stakes"].update(data="AAAA"),
            FileFormatError,
        ),
        (lambda w: w["questions"]["worse"].update(begun="many"), FileFormatError),
        (lambda w: w.update(settings=None), FileFormatError),
        (lambda w: w.update(turned_away=[["x"]]), FileFormatError),
    ],
)
def test_what_no_watch_wrote_is_refused(change: object, error: type[Exception]) -> None:
    head = calibrated()
    Watch(head).see(*blobs(50, 2))
    record = json.loads(json.dumps(head.records["watch"]))
    change(record)  # type: ignore[operator]
    head.records["watch"] = record
    with pytest.raises(error, match="begin anew"):
        Watch(head)


def test_a_new_calibration_goes_on_with_what_was_seen() -> None:
    head = calibrated()
    Watch(head).see(*blobs(500, 2))
    before = Watch(head)
    head.observe(*blobs(300, 7))
    z, y = blobs(900, 8)
    z, y = torch.cat([z, z[:90] + 20]), torch.cat([y, torch.full((90,), C)])
    head.observe(z[-90:-40], y[-90:-40])
    head.calibrate(torch.cat([z[:900], z[-40:]]), torch.cat([y[:900], y[-40:]]))
    after = Watch(head)
    assert after.report().verdicts[0].rows == 500
    assert len(after.rules["moved"].p) == C + 1
    assert after.rules["worse"].promise.delta == before.rules["worse"].promise.delta / 2
    after.see(*blobs(100, 9))
    assert Watch(head).rules["worse"].promise.delta == after.rules["worse"].promise.delta


def test_all_or_nothing() -> None:
    head = calibrated()
    watch = Watch(head)
    watch.see(*blobs(100, 2))
    before, report = json.dumps(head.records), watch.report()
    z, y = blobs(10, 3)
    nan = z.clone()
    nan[3, 2] = torch.nan
    bad = [
        ((nan, y), DataError),
        ((z[:, :2], y), LastLayerError),
        ((z, y[:4]), LastLayerError),
        ((z, y - 5), LabelError),
        ((z, y.double()), LabelError),
        (("rows", y), DataError),
    ]
    for arguments, error in bad:
        with pytest.raises(error):
            watch.see(*arguments)
        assert json.dumps(head.records) == before
        assert watch.report() == report
    assert watch.see(z[:0], y[:0]) == ()
    assert watch.report().verdicts[0].rows == 100


def test_its_state_does_not_grow_with_the_stream() -> None:
    head = calibrated()
    for promise in ({"false_alarms": 0.1}, {"rows": 300}):
        watch = Watch(head, reset=True, **promise)
        sizes = []
        for part in range(90):
            watch.see(*blobs(40, part, shift=part / 400))
            sizes.append(len(json.dumps(head.records)))
        assert max(sizes) < 1.2 * sizes[-1] + 2000
        assert len(watch._state.turned_away) == RECENT


@pytest.mark.parametrize("bad", [
    {"false_alarms": 0}, {"false_alarms": 1}, {"rows": 0}, {"tolerance": -0.1}, {"tolerance": 1},
    {"false_alarms": 0.1, "rows": 10}, {"false_alarms": float("nan")},
])  # fmt: skip
def test_impossible_promises_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        Watch(calibrated(), **bad)


def test_a_head_that_is_not_calibrated_is_refused() -> None:
    head = ll.make_head("slda", H)
    head.observe(*blobs(100, 0))
    with pytest.raises(NotCalibratedError, match="is not calibrated"):
        Watch(head)
    head.calibrate(*blobs(100, 1))
    head.calibration = ll.heads.Calibration.of(1.0, torch.arange(10.0))
    with pytest.raises(NotCalibratedError, match="by an older version"):
        Watch(head)
    with pytest.raises(ArgumentError, match="a head or a HeadClassifier"):
        Watch("slda")  # type: ignore[arg-type]


def test_two_watches_of_one_calibration_merge_and_others_do_not() -> None:
    """Each stream alone is too short for an alarm, or long enough; the merged watch goes on."""
    head = calibrated()
    other = deepcopy(head)
    for promise in ({"false_alarms": 0.1}, {"rows": 5000}):
        one, two = Watch(head, reset=True, **promise), Watch(other, reset=True, **promise)
        one.see(*blobs(200, 2))
        two.see(*blobs(300, 3))
        merged = one.merge(two)
        assert [v.rows for v in merged.report().verdicts] == [500] * 3
        hits = [w._state.questions["strange"].hits for w in (one, two, merged)]
        assert hits[0] + hits[1] == hits[2] > 0
        e1, e2, both = (
            w.rules["worse"].evidence(w._state.questions["worse"].wealth)
            for w in (one, two, merged)
        )
        assert both <= (e1 + e2) * (0.5 if "rows" not in promise else 1) + 1e-12
        assert set(asked(merged.see(*blobs(400, 4, shift=3)))) >= {"strange", "moved"}
        assert one.report().verdicts[1].rows == 200
        with pytest.raises(MergeError, match="promise the same"):
            one.merge(Watch(deepcopy(head), 0.01, reset=True))
    with pytest.raises(MergeError, match="same calibration"):
        Watch(head, reset=True).merge(Watch(calibrated("mean"), reset=True))


def test_merging_keeps_an_alarm_that_lasts() -> None:
    head = calibrated()
    one, two = (Watch(deepcopy(head), rows=1000, reset=True) for _ in range(2))
    one.see(*blobs(100, 2, shift=3))
    two.see(*blobs(5000, 3))
    assert [w.report().verdicts[1].alarm for w in (one, two)] == [True, False]
    for merged in (one.merge(two), two.merge(one)):
        assert merged.report().verdicts[1].alarm
    one.see(*blobs(5000, 4))
    assert not one.report().verdicts[1].alarm
    assert not one.merge(two).report().verdicts[1].alarm
    two.see(*blobs(100, 5, shift=3))
    for merged in (one.merge(two), two.merge(one)):
        assert merged.report().verdicts[1].alarm


def test_forgetting_marks_a_watch() -> None:
    head = calibrated()
    watch = Watch(head)
    watch.see(*blobs(100, 2))
    z, y = blobs(400, 0)
    head.forget(z[:5], y[:5])
    assert head.records["watch"]["forgot"]
    watch.see(*blobs(100, 3))
    assert head.records["watch"]["forgot"]
    assert "forgotten rows" in str(watch.report())
    watch.reset()
    assert not head.records["watch"]["forgot"]


def test_a_classifier_is_watched_with_its_labels() -> None:
    (z, y), (fresh, of) = blobs(400, 0), blobs(800, 1)
    names = np.array(["d", "c", "b", "a"])
    clf = ll.HeadClassifier("slda").fit(z.numpy(), names[y]).calibrate(fresh.numpy(), names[of])
    watch = Watch(clf)
    z, y = blobs(1000, 3, shift=2, of=1)
    labels = names[y].astype("<U9")
    labels[:7] = "new one"
    assert "moved" in asked(watch.see(z.numpy(), labels.tolist()))
    moved = watch.report().verdicts[2]
    assert list(moved.classes) == ["c"]
    assert moved.rows == 993
    assert clf.classes_.tolist() == ["a", "b", "c", "d"]


def test_a_page_shows_the_evidence() -> None:
    watch = Watch(calibrated())
    for part in range(5):
        watch.see(*blobs(200, part, shift=part))
    page = watch_page(watch.report(), watch._state.questions, watch.rules)
    assert page.answer == (
        "Alarm: the inputs are strange; classes have moved: class 0, class 1, class 2, …."
    )
    assert [section.name for section in page.sections] == ["worse", "strange", "moved"]
    for section, verdict in zip(page.sections, watch.report().verdicts, strict=True):
        assert tuple(section.words) == verdict.sentences
        rows = section.panels[0].figures[0].rows
        assert [row["row"] for row in rows] == [200, 400, 600, 800, 1000]
        assert rows[-1]["alarm"] > rows[0]["evidence"]
        assert (rows[-1]["evidence"] > rows[-1]["alarm"]) == verdict.alarm
    names = [row[0].text for row in page.sections[2].tables[0].rows]
    assert names == list(watch.report().verdicts[2].classes)


@pytest.mark.slow
def test_a_page_is_drawn(tmp_path: Path) -> None:
    watch = Watch(calibrated())
    for part in range(3):
        watch.see(*blobs(200, part, shift=part))
    watch.page(tmp_path / "watch.html")
    page = (tmp_path / "watch.html").read_text(encoding="utf-8")
    for text in ("How the head is doing", "Is the head getting worse?", "Which class moved?"):
        assert text in page
    assert page.count('"evidence"') >= 3


def test_rows_that_look_alike_are_counted() -> None:
    rng = np.random.default_rng(0)
    one_class = rng.standard_normal((20, DIRECTIONS)) * 0.5
    scattered = rng.standard_normal((12, DIRECTIONS)) * 9
    group, of = look_alike([*one_class, *scattered])
    assert (15 <= group <= 20, of) == (True, 32)
    assert look_alike(scattered.tolist())[0] < 3
    assert look_alike([]) == (0, 0)


def test_the_shell_watches_week_by_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    leave_out_the_renderer(monkeypatch)
    z, y = blobs(400, 0)
    names = np.array(["ant", "bee", "cat", "dog"])
    clf = ll.HeadClassifier("slda").fit(z.numpy(), names[y])
    fresh, of = blobs(800, 1)
    clf.calibrate(fresh.numpy(), names[of]).save("head.safetensors")
    for week, shift in (("one", 0.0), ("two", 2.0)):
        z, y = blobs(1200, 5, shift=shift, of=2)
        columns = {f"z_{i}": z[:, i].numpy() for i in range(H)}
        pl.DataFrame({"species": names[y], **columns}).write_parquet(f"{week}.parquet")
    verb = ["watch", "head.safetensors"]
    run = CliRunner().invoke
    first = run(app, [*verb, "one.parquet", "--label", "species", "--false-alarms", "0.1"])
    assert first.exit_code == 0, first.output
    assert first.output.count("no sign of it") == 3
    command = "cat > alarms.json"
    second = run(app, [*verb, "two.parquet", "--label", "species", "--page", "page.html",
                       "--on-alarm", command])  # fmt: skip
    assert second.exit_code == 0, second.output
    assert "1 of 4 classes: cat." in second.output
    alarms = json.loads(Path("alarms.json").read_text())
    assert "moved" in [alarm["question"] for alarm in alarms]
    assert Path("page.html").stat().st_size > 1000
    unlabelled = pl.read_parquet("one.parquet").drop("species")
    unlabelled.write_parquet("three.parquet")
    third = run(app, [*verb, "three.parquet", "--json", "--out", "other.safetensors"])
    document = json.loads(third.output)
    assert [verdict["rows"] for verdict in document["verdicts"]] == [2400, 3600, 2400]
    assert HeadClassifier.load("head.safetensors").head_.records["watch"]["outside"] == 0
    wrong = run(app, [*verb, "one.parquet", "--label", "species", "--rows-between", "1000"])
    assert isinstance(wrong.exception, OptionError)
    failing = run(
        app, [*verb, "two.parquet", "--label", "species", "--reset", "--on-alarm", "false"]
    )
    assert isinstance(failing.exception, OptionError)
    assert "ended with code 1" in str(failing.exception)


def test_a_command_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastlayer.live.watch.on_alarm.PATIENCE", 0.05)
    with pytest.raises(OptionError, match="took more than"):
        tell("exec sleep 9", [])


def test_a_class_replaced_by_a_known_one_is_named_by_its_errors() -> None:
    head = calibrated()
    watch = Watch(head)
    watch.see(*blobs(1000, 2))
    z, y = blobs(2000, 3)
    taken = torch.where(y == 2, 3, y)  # rows of class 3 as class 2, one in two
    both = (y == 3) & (torch.arange(2000) % 2 == 0)
    assert "moved" in asked(watch.see(z, torch.where(both, 2, taken)))
    errors = watch.report().verdicts[2].classes["class 2"].errors
    assert errors is not None
    assert errors.most < errors.share


def test_answers_that_are_further_from_right_are_worse_though_no_more_are_wrong() -> None:
    """Where an answer was wrong, the right class becomes the last of all."""

    def near(n: int, seed: int) -> tuple[Tensor, Tensor]:
        z, y = blobs(n, seed)
        return z - 1.2 * torch.eye(C, H, dtype=z.dtype)[y], y

    head = ll.make_head("slda", H)
    head.observe(*near(1000, 0))
    head.calibrate(*near(2000, 1))
    watch = Watch(head)
    z, y = near(4000, 2)
    logits = head(z)
    last = torch.where(logits.argmax(dim=1) != y, logits.argmin(dim=1), y)
    assert asked(watch.see(z, y)) == []
    assert "worse" in asked(watch.see(z, last))
    said = watch.report().verdicts[0]
    assert "of the answers were very far from right; at the calibration" in " ".join(said.sentences)
    assert said.finding is not None
    assert said.finding.far is not None
    edge = Reference.read(head.calibration.reference).edge[-1]  # type: ignore[union-attr,arg-type]
    far = np.concatenate([ahead(logits, y), ahead(logits, last)])[said.finding.since :]
    assert said.finding.far.share == pytest.approx((far > edge).mean())


def test_inputs_that_are_a_little_stranger_are_noticed_on_average() -> None:
    """Rows of the middle of what was calibrated, none of which is beyond the limit."""
    head = calibrated()
    z, _ = blobs(20_000, 2)
    novelty = head.novelty(z)
    low, top = novelty.quantile(0.5), head.limit(0.05)
    some = z[(novelty > low) & (novelty <= top)][:2000]
    watch = Watch(head)
    assert asked(watch.see(some)) == ["strange"]
    said = watch.report().verdicts[1]
    assert "On average an input is stranger than" in " ".join(said.sentences)
    assert said.finding is not None
    assert said.finding.size.share == 0
    assert said.finding.rank is not None
    places = Reference.read(head.calibration.reference).places[1]  # type: ignore[union-attr,arg-type]
    ranks = rank(head.novelty(some).numpy(), places)[said.finding.since :]
    assert said.finding.rank.share == pytest.approx(ranks.mean())


def test_answers_given_elsewhere_are_scored_as_wrong_or_right_alone() -> None:
    head = calibrated()
    z, y = blobs(2000, 2)
    own, given = Watch(deepcopy(head)), Watch(head)
    own.see(z, y)
    given.see(z, y, answered=head.predict(z))
    stakes = [w._state.questions["worse"].wealth.stakes[0] for w in (own, given)]
    assert np.allclose(stakes[0][0], stakes[1][0])
    new = given.rules["worse"].share[1:] * (1 - unspent(np.array(2000)))
    assert np.allclose(stakes[1][1:], new)  # nothing was bet: nothing won, nothing lost


def test_a_head_that_learns_by_order_may_err_now_in_one_class_now_in_another() -> None:
    """Only where it keeps statistics are the errors of a class bet on while it learns."""
    for name, bets in (("slda", True), ("linear", False)):
        head = calibrated(name)
        watch = Watch(head)
        assert np.isfinite(watch._compared.in_force("moved", head).p).all()
        head.observe(*blobs(50, 5))
        assert bool(np.isfinite(watch._compared.in_force("moved", head).p).all()) is bets
        z, y = blobs(2000, 2)
        taken = torch.where(y == 2, 3, y)
        alarms = asked(watch.see(z, taken, answered=y))
        assert ("moved" in alarms) or not bets
        assert "worse" in alarms


def test_how_far_another_class_is_ahead() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.0], [-torch.inf, 1.0, 0.0], [2.0, 2.0, 2.0]])
    y = torch.tensor([0, 0, 1])
    assert ahead(logits, y).tolist() == pytest.approx([-2 / 3, 1, 0])
    assert ahead(1000 * logits - 7, y).tolist() == pytest.approx([-2 / 3, 1, 0])
    assert ahead(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64)).tolist() == [0, 0]
    assert ahead(torch.tensor([[0.0, -torch.inf]]), torch.tensor([0])).tolist() == [0]


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_tiny_calibrations_bet_nothing_that_they_do_not_know(classes: int, rows: int) -> None:
    head = ll.make_head("mean", H)
    z, y = blobs(60, 0)
    head.observe(z, y % classes)
    z, y = blobs(rows + 1, 1)
    y[: min(classes, rows)] = torch.arange(min(classes, rows))
    if rows >= classes:
        head.calibrate(z[:rows], y[:rows] % classes)
        z, y = blobs(3000, 2)
        assert Watch(head).see(z, y % classes) == ()


def test_a_watch_with_few_calibration_rows_says_so() -> None:
    head = ll.make_head("slda", H)
    head.observe(*blobs(400, 0))
    head.calibrate(*blobs(40, 1))
    assert "Only 40 rows were calibrated with" in str(Watch(head).report())
    assert "were calibrated with" not in str(Watch(calibrated()).report())


@pytest.mark.parametrize(
    ("first", "said"),
    [(0, "row 792 of all (at the latest 1,620)"), (5, "row 792 of all (5 to 1,620)")],
)
def test_a_change_that_may_have_been_there_from_the_first_row(first: int, said: str) -> None:
    size = Size(0.2, 0.1, 0.3, 0.05, 0.08)
    found = Finding(since=792, first=first, last=1620, rows=4000, size=size)
    assert say_strange(found, (1, 9))[0] == f"Inputs have been stranger since about {said}."
