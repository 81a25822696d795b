"""The whole answer: chosen without peeking, clear about what it cannot know."""

import json
import re
import shlex
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import lastlayer as ll
from lastlayer import catalogue
from lastlayer.advice.references import AT_ONCE, MAPPED, SOFTMAX, WIDE
from lastlayer.cli import app, main
from lastlayer.errors import DataError, LabelError, OptionError, UnknownNameError
from lastlayer.heads import MeanHead
from small_streams import blobs, noise

HEADS = ["linear", "cosine+single", "mean", "slda", "knn"]


@pytest.fixture(scope="module")
def advice():
    return ll.advise(blobs(n=600, noise=2.0), "incremental:2", heads=HEADS)


def test_the_answer_names_the_head_and_its_rows(advice):
    assert f"se {advice.head}: it gets" in advice.answer
    assert advice.table["head"][0] == advice.head
    assert set(advice.table["head"]) == set(HEADS)
    assert advice.curves["task"].max() == 2


def test_fit_gives_what_was_judged(advice):
    classifier = advice.fit()
    stream = advice.data
    right = classifier.predict(stream.test_z.numpy()) == stream.test_y.numpy().astype(str)
    assert right.mean() == pytest.approx(advice.tested.scores.of(advice.head), abs=0.02)


def test_it_says_what_is_left_to_gain_by_keeping_rows():
    data, heads = blobs(n=600, noise=2.0), ["mean", "kernel_ridge"]
    without = ll.advise(data, "incremental:2", heads=heads, no_samples=True)
    gained = without.references.left_to_gain()
    assert without.head == "mean"
    assert gained is not None
    assert gained == without.choice.scores.difference("kernel_ridge", "mean")
    (said,) = (line for line in without.reasons if "kernel ridge" in line)
    assert "which keeps all rows, gets" in said
    free = ll.advise(data, "incremental:2", heads=["kernel_ridge"])
    assert free.references.left_to_gain() is None


@pytest.mark.slow
def test_with_too_many_rows_a_wide_map_stands_for_the_best_of_any_kind(monkeypatch):
    few = replace(catalogue.HEADS["kernel_ridge"], most_rows=100)
    monkeypatch.setitem(catalogue.HEADS, "kernel_ridge", few)
    advice = ll.advise(blobs(n=300, noise=2.0), None, heads=["mean", "kernel_ridge"])
    assert WIDE in advice.references
    assert advice.references.left_to_gain() is None
    assert any(line.startswith("Left out: kernel_ridge") for line in advice.reasons)


def test_a_head_with_its_width_is_advised_like_any_other(tmp_path):
    advice = ll.advise(blobs(n=300, noise=2.0), None, heads=["random_slda@30"])
    assert advice.head == "random_slda@30"
    assert advice.table["memory"].item() < 60_000
    assert MAPPED in advice.references
    advice.page(tmp_path / "page.html")
    assert "random_slda@30" in (tmp_path / "page.html").read_text(encoding="utf-8")
    advice.fit().save(tmp_path / "head")
    assert ll.load_head(tmp_path / "head").settings["width"] == 30


def test_rows_are_fitted_in_pieces(monkeypatch):
    data = blobs(n=600, noise=2.0)
    advice = ll.advise(data, "incremental:2", heads=["slda"])
    whole = advice.fit()
    sizes, learn = [], ll.HeadClassifier.partial_fit
    monkeypatch.setattr("lastlayer.advice.answer.PIECE", 70)
    monkeypatch.setattr(
        ll.HeadClassifier, "partial_fit", lambda clf, z, y: (sizes.append(len(z)), learn(clf, z, y))
    )
    pieces = advice.fit()
    assert max(sizes) == 70
    z = data.test.z.numpy()
    assert pieces.predict(z).tolist() == whole.predict(z).tolist()


def test_a_head_trained_by_gradient_is_fitted_as_it_was_judged():
    advice = ll.advise(blobs(noise=1.0), "incremental:2", heads=["cosine+single"])
    classifier = advice.fit()
    assert classifier.lr == advice.table["lr"][0]
    assert classifier.feature_scale == advice.judgement.scale
    right = classifier.predict(advice.data.test_z) == advice.data.test_y.numpy().astype(str)
    assert right.mean() == pytest.approx(advice.tested.scores.of("cosine+single"), abs=0.1)


def test_shuffled_test_labels_change_nothing_in_the_choice(advice):
    data = blobs(n=600, noise=2.0)
    order = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))
    labels = {"y": data.test.y[order]}
    shuffled = replace(data, test=replace(data.test, labels=labels, check=False), fingerprint="")
    other = ll.advise(shuffled, "incremental:2", heads=HEADS)
    same = [column for column in advice.table.columns if column != "latency"]
    assert other.head == advice.head
    assert other.table.select(same).equals(advice.table.select(same))
    assert other.answer.partition(" The ")[0] == advice.answer.partition(" Of ")[0]
    assert other.tested.scores.of(other.head) < advice.tested.scores.of(advice.head)


def test_training_rows_alone_are_enough():
    data = blobs()
    advice = ll.advise(ll.FeatureSet(data.train.z, data.train.labels), "incremental:2", heads=HEADS)
    assert advice.tested is None
    assert any("no test rows" in reason for reason in advice.reasons)


def test_validation_rows_choose_and_are_not_learned():
    """Held-out rows are copies of learned ones here: they would advise knn; fresh rows do not."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(1600) % 4
    means = torch.randn(4, 6, generator=random)
    z = means[y] + 1.5 * torch.randn(1600, 6, generator=random)
    copies = torch.arange(1000) // 5
    train = z[copies] + 0.001 * torch.randn(1000, 6, generator=random)
    fresh = ll.FeatureSet(z[1000:], {"y": y[1000:]})
    data = ll.Features.from_arrays(train, y[copies], test=(z[1000:1010], y[1000:1010]))
    data = replace(data, validation=fresh)
    alone = ll.advise(ll.FeatureSet(train, {"y": y[copies]}), heads=["knn", "slda"])
    assert alone.head == "knn"
    advice = ll.advise(data, heads=["knn", "slda"])
    assert advice.head == "slda"
    assert "of 600 validation rows right" in advice.answer
    learned = torch.cat(advice.judgement.splits[0].tasks)
    assert learned.sort().values.tolist() == list(range(1000))
    assert advice.curves["accuracy"].drop_nulls().len() == 2


@pytest.mark.parametrize("known", [True, False], ids=["sources", "no-sources"])
def test_sources_stay_together_beside_validation_rows(known):
    data = blobs(n=400, noise=1.0, source=torch.arange(400) // 8)
    more = blobs(n=600, noise=1.0, seed=1)
    labels = {"y": more.train.y} | ({"source": torch.arange(600) // 100} if known else {})
    fresh = ll.FeatureSet(more.train.z, labels)
    data = replace(data, validation=fresh)
    advice = ll.advise(data, heads=["slda", "cosine"], group="source")
    assert advice.data.group[:400].tolist() == data.train.labels["source"].tolist()
    assert len(advice.data.group[400:].unique()) == (6 if known else 600)
    assert "of 600 validation rows right" in advice.answer


def test_few_validation_rows_are_looked_at_after_the_choice():
    data = blobs(n=600, noise=2.0)
    few = replace(data, validation=data.test)
    advice = ll.advise(few, "incremental:2", heads=["mean", "slda"])
    assert "held-out rows" in advice.answer
    assert any(reason.startswith("On 150 validation rows") for reason in advice.reasons)


def test_the_interval_says_what_it_covers():
    data = blobs(n=600, noise=2.0)
    alone = ll.advise(ll.FeatureSet(data.train.z, data.train.labels), heads=["slda"])
    assert alone.answer.endswith("The interval is for new rows that are drawn as these were.")
    assert "Of 150 test rows it gets" in ll.advise(data, heads=["slda"]).answer


def test_rows_with_near_copies_are_said_to_be_easier_than_new_ones():
    random = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    z = torch.randn(300, 20, generator=random) + y[:, None]
    alike = z.repeat(3, 1) + 0.2 * torch.randn(900, 20, generator=random)
    advice = ll.advise(ll.FeatureSet(alike, {"y": y.repeat(3)}), heads=["slda"])
    assert "have a near-copy here, so new rows are likely harder" in advice.answer
    source = ll.FeatureSet(alike, {"y": y.repeat(3), "writer": torch.arange(300).repeat(3)})
    known = ll.advise(source, heads=["slda"], group="writer")
    assert "near-copy" not in str(known) + str(known.stream)


def test_harder_test_rows_come_first():
    data = blobs(n=2000, noise=1.0)
    random = torch.Generator().manual_seed(0)
    hard = data.test.z + 3 * torch.randn(data.test.z.shape, generator=random)
    data = ll.Features.from_arrays(data.train.z, data.train.y, test=(hard, data.test.y))
    advice = ll.advise(data, heads=["slda"])
    assert "test rows are harder" in advice.answer
    assert "expect that of new rows" in advice.answer


def test_on_pure_noise_it_says_that_it_cannot_tell():
    advice = ll.advise(noise(), "incremental:5", heads=["mean", "slda", "knn"])
    assert advice.answer.startswith("These rows do not show which head to use")


def test_of_two_identical_heads_it_says_that_it_cannot_tell(monkeypatch):
    """A head that nobody has seen before joins by its card alone."""
    card = replace(catalogue.HEADS["mean"], name="twin", home=f"{__name__}:Twin")
    monkeypatch.setitem(catalogue.HEADS, "twin", card)
    monkeypatch.setattr("lastlayer.core.names.get_close_matches", lambda *_, **__: [])
    advice = ll.advise(blobs(noise=1.0), "incremental:2", heads=["twin", "mean"])
    assert advice.head == "mean"
    assert "twin gives the same answers" in advice.answer
    assert any("give the same answers on these rows" in reason for reason in advice.reasons)


class Twin(MeanHead):
    """The same as mean, under another name."""

    name = "twin"


def test_references_stand_beside_the_head(advice):
    assert SOFTMAX in advice.references
    assert "linear" + AT_ONCE in advice.references
    assert any("ever retraining" in reason for reason in advice.reasons)


def test_a_linear_layer_falls_only_against_itself_at_once():
    whole = ll.advise(blobs(noise=2.0), None, heads=["linear", "mean"])
    assert not any("falls" in reason for reason in whole.reasons)
    parts = ll.advise(
        blobs(n=800, n_classes=8, noise=1.0), "incremental:8", heads=["linear", "mean"]
    )
    fall = parts.references.fall("linear")
    assert any("falls to" in reason for reason in parts.reasons) == (
        fall.low > 0 and fall.value >= 0.005
    )


@pytest.mark.parametrize(
    "heads",
    [
        [*HEADS, "median", "qda", "ridge", "weight_norm", "linear_no_bias"],
        pytest.param(None, marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_many_that_are_alike_are_counted_in_the_answer(heads):
    advice = ll.advise(blobs(noise=0.1), None, heads=heads)
    assert len(advice.choice.twins) > 6
    assert "more give the same answers." in advice.answer
    assert len(advice.answer) < 300
    alike = [reason for reason in advice.reasons if "give the same answers on these" in reason]
    assert len(alike) == 1
    assert " more give" in alike[0]
    ending = next(reason for reason in advice.reasons if "ordinary linear layer" in reason)
    assert "falls" not in ending


def test_where_retraining_is_much_better_the_answer_says_so_first():
    random = torch.Generator().manual_seed(0)
    z = torch.randn(3000, 2, generator=random) * torch.tensor([20.0, 1.0])
    data = ll.FeatureSet(z, {"y": (z[:, 1] > 0).long()})
    advice = ll.advise(data, "incremental:2", heads=["mean"])
    assert advice.answer.startswith("Retraining on everything would be better: a softmax")


def test_finer_labels_that_pay_are_learned():
    random = torch.Generator().manual_seed(0)
    fine = torch.arange(1200) % 4
    corners = 4 * torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    z = corners[fine] + torch.randn(1200, 2, generator=random)
    data = ll.FeatureSet(z, {"coarse": fine // 2, "fine": fine})
    # Four corners: no line parts the coarse classes, so of heads on those knn is advised.
    advice = ll.advise(data, None, heads=["mean", "slda", "knn"])
    assert advice.choice.head == "knn"
    alone = ll.advise(data, None, heads=["mean"])
    (finer,) = alone.finer
    assert finer.pays
    assert finer.gain.low > 0.3
    assert finer.plain["mean"] < 0.6
    assert alone.answer.startswith(
        "Use mean and let it learn the finer labels 'fine' to answer 'coarse': it gets 9"
    )
    assert "points more than mean that learns 'coarse' itself." in alone.answer
    assert any("'fine' refines 'coarse'" in r and "pays off" in r for r in alone.reasons)
    told = alone.as_dict()
    assert (told["head"], told["learns"], told["answers"]) == ("mean", "fine", "coarse")
    classifier = alone.fit()
    assert classifier.classes_.tolist() == ["0", "1"]
    right = classifier.predict(z.numpy()) == (fine // 2).numpy().astype(str)
    assert right.mean() == pytest.approx(alone.chosen.scores.of("mean"), abs=0.02)


def test_test_rows_are_answered_by_finer_labels_too():
    data = ll.load_features("cifar100", label="coarse")
    advice = ll.advise(data, "incremental:5", heads=["mean", "slda"])
    assert advice.by is not None
    assert advice.tested is not None
    right = advice.fit().predict(data.test.z.numpy()) == np.array(data.names["coarse"])[data.test.y]
    assert advice.tested.scores.of("slda by 'fine'") == pytest.approx(right.mean(), abs=1e-9)
    assert right.mean() > 0.73  # slda on the coarse labels: 0.68
    assert any("slda by 'fine' 73.7 %" in reason for reason in advice.reasons)


def test_of_pairs_of_head_and_labels_the_best_is_advised():
    """A head that is not the best on the label may be the best by the finer ones."""
    random = torch.Generator().manual_seed(0)
    fine = torch.arange(3000) % 4
    corners = 4 * torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    z = corners[fine] + torch.randn(3000, 2, generator=random)
    z[:, 1] *= 0.1 + torch.rand(3000, generator=random)
    data = ll.FeatureSet(z, {"coarse": fine // 2, "fine": fine})
    advice = ll.advise(data, None, heads=["mean", "slda", "qda"])
    assert advice.by is not None
    assert advice.choice.head == "qda"
    assert advice.head in advice.by.plain
    best = max(advice.by.plain, key=advice.by.choice.scores.of)
    assert advice.by.choice.best == best


def test_constraints_are_told_with_their_price():
    data = blobs(noise=2.5)
    advice = ll.advise(data, "incremental:2", heads=HEADS, no_samples=True, memory="1MB")
    assert advice.head != "knn"
    assert any(reason.startswith("--no-samples costs") for reason in advice.reasons)
    assert any(reason.startswith("--memory 1.0MB costs") for reason in advice.reasons)


# Bad input: a clear word and the best that can still be said, or an error that names the row.


def test_one_task_is_everything_at_once():
    advice = ll.advise(blobs(), "incremental:1", heads=["mean", "slda"])
    assert advice.stream.kind == "all at once"


def test_one_class_leaves_nothing_to_choose():
    data = ll.FeatureSet(torch.randn(20, 2), {"y": torch.zeros(20, dtype=torch.int64)})
    with pytest.raises(LabelError, match="'y' must have at least two classes"):
        ll.advise(data)


def test_a_class_with_a_single_row_is_said_to_be_never_judged():
    z = torch.cat([blobs().train.z, torch.full((1, 6), 30.0)])
    y = torch.cat([blobs().train.y, torch.tensor([4])])
    advice = ll.advise(ll.FeatureSet(z, {"y": y}), heads=["mean", "slda"], no_samples=True)
    assert any("1 class has a single row (4)" in text for text in advice.stream.sentences)
    assert any("mean of a class with a single row is that row" in r for r in advice.reasons)


def test_a_task_without_held_out_rows_is_learned_from():
    y = torch.cat([torch.arange(200) % 2, torch.tensor([2])])
    z = y[:, None] * 3.0 + torch.randn(201, 4, generator=torch.Generator().manual_seed(0))
    data = ll.Features.from_arrays(z, y, test=(z, y), day=[0] * 200 + [1])
    advice = ll.advise(data, "mixed:day", heads=["mean", "slda", "cosine"])
    assert 2 not in {int(c) for split in advice.judgement.held_y for c in split}
    assert any("task 2 has no held-out rows" in reason for reason in advice.reasons)
    assert "2" in advice.fit().predict(z[-1:].numpy()).tolist()


@pytest.mark.slow
def test_very_many_classes_leave_the_cheap_heads():
    y = torch.arange(100_000).repeat(2)
    z = torch.nn.functional.one_hot(y % 7, 7).float() + y[:, None] / 1e5
    advice = ll.advise(ll.FeatureSet(z[:], {"y": y}), heads=["linear", "mean"])
    assert advice.head == "mean"
    assert any("Left out: linear" in reason for reason in advice.reasons)


def test_a_time_column_with_gaps_is_told_of():
    months = ["2024-01", "2024-02", "2024-05"]
    data = blobs(n=300, month=[months[i % 3] for i in range(300)])
    advice = ll.advise(data, "mixed:month", heads=["mean", "slda"])
    assert "'month' has gaps: nothing came in 2024-03, 2024-04." in advice.stream.sentences


def test_nan_is_refused_with_its_row():
    z = torch.randn(20, 2)
    z[7, 1] = torch.nan
    data = ll.FeatureSet(z, {"y": torch.arange(20) % 2}, check=False)
    with pytest.raises(DataError, match="training row 7"):
        ll.advise(data)


def test_tasks_that_do_not_divide_the_classes_are_shared_out():
    data = blobs(n=700, n_classes=7)
    advice = ll.advise(data, "incremental:3", heads=["mean"])
    assert [len(rows) for rows in advice.data.tasks] == [300, 200, 200]
    assert any("so the tasks get 3, 2, 2" in text for text in advice.stream.sentences)
    with pytest.raises(OptionError, match="at most one for each of the 7 classes, got 8"):
        ll.advise(data, "incremental:8")


def test_wrong_names_get_the_nearest_right_one():
    with pytest.raises(UnknownNameError, match="did you mean 'slda'"):
        ll.advise(blobs(), heads=["sldaa"])
    with pytest.raises(UnknownNameError, match="unknown label column 'sesion'"):
        ll.advise(blobs(), group="sesion")


def test_sources_stay_together():
    data = blobs(n=400, noise=1.0, source=torch.arange(400) // 8)
    advice = ll.advise(data, "incremental:2", heads=["mean", "slda"], group="source")
    source = advice.data.group
    for split in advice.judgement.splits:
        learned = source[torch.cat(split.tasks)]
        assert not set(source[split.held].tolist()) & set(learned.tolist())


def test_what_sources_keep_from_being_judged_is_told_of():
    z, y = blobs(n=400, noise=1.0).train.z, torch.arange(400) % 4
    source = torch.where(y == 3, 99, torch.arange(400) // 8)
    test = (z[:40] + 0.01, y[:40], {"source": torch.cat([source[:10], torch.arange(500, 530)])})
    data = ll.Features.from_arrays(z, y, test=test, source=source)
    advice = ll.advise(data, "incremental:2", heads=["mean", "slda"], group="source")
    told = " ".join(advice.reasons)
    assert "1 of 4 classes (3; 100 rows) come from one source each" in told
    assert "10 of these test rows come from sources that are among the training rows" in told
    without = ll.advise(data, "incremental:2", heads=["mean", "slda"])
    assert "source" not in " ".join(without.reasons)


def test_how_a_layer_was_trained_is_told_of():
    advice = ll.advise(blobs(noise=1.0), "incremental:2", heads=["linear"])
    scale, lr = advice.judgement.scale, advice.table["lr"][0]
    told = f"--feature-scale {scale:.3g} --lr {lr:.3g} --epochs {advice.judgement.epochs}"
    assert told in " ".join(advice.reasons)
    assert "--lr" not in " ".join(ll.advise(blobs(), heads=["slda"]).reasons)


def test_retraining_that_is_not_shown_to_help_costs_nothing():
    advice = ll.advise(blobs(n=80, noise=0.3), heads=["slda"])
    assert advice.references.price()[1].low <= 0
    assert "costs nothing here" in str(advice) or "is not shown to cost anything" in str(advice)


def test_the_command(tmp_path):
    file, page = tmp_path / "mine.safetensors", tmp_path / "advice.html"
    blobs(noise=1.5).save(file)
    options = ["--incremental", "3", "--heads", ",".join(HEADS), "--no-samples"]
    result = CliRunner().invoke(app, ["advise", str(file), *options, "--page", str(page)])
    assert result.exit_code == 0, result.output
    for text in ("Use ", "The stream", "so the tasks get", "--no-samples costs", "wrote"):
        assert text in result.output
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_table_without_a_split_is_training_data(tmp_path):
    data = blobs(n=240, noise=1.5)
    months = [f"2024-{1 + row % 3:02d}" for row in range(240)]
    names = [f"bird {label}" for label in data.train.y.tolist()]
    table = {"z": data.train.z.tolist(), "species": names, "month": months}
    file = tmp_path / "mine.parquet"
    pl.DataFrame(table).write_parquet(file)
    options = ["--by", "month", "--label", "species", "--heads", "mean,slda"]
    result = CliRunner().invoke(app, ["advise", str(file), *options])
    assert result.exit_code == 0, result.output
    for text in ("240 training rows", "There are no test rows", "the stream is lifelong"):
        assert text in result.output
    assert "takes bird" in result.output


def test_a_table_with_a_split_keeps_it(tmp_path):
    data = blobs(n=240, noise=1.5)
    split = ["test" if row % 4 == 0 else "train" for row in range(240)]
    table = {"z": data.train.z.tolist(), "y": data.train.y.tolist(), "split": split}
    file = tmp_path / "mine.parquet"
    pl.DataFrame(table).write_parquet(file)
    options = ["--incremental", "2", "--embedding", "z", "--heads", "mean,slda"]
    result = CliRunner().invoke(app, ["advise", str(file), *options])
    assert result.exit_code == 0, result.output
    assert "On 60 test rows" in result.output


def _advised(tmp_path, monkeypatch, *options, **columns):
    """Advise on a table of blobs in the folder of the command, and return what is printed."""
    monkeypatch.chdir(tmp_path)
    data = blobs(n=240, noise=1.5)
    table = {"emb": data.train.z.tolist(), "kind": data.train.y.tolist(), **columns}
    pl.DataFrame(table).write_parquet("my rows.parquet")
    result = CliRunner().invoke(app, ["advise", "my rows.parquet", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("head", ["slda", "cosine+single"])
def test_it_ends_with_the_next_command_complete(tmp_path, monkeypatch, head):
    options = ["--label", "kind", "--embedding", "emb", "--heads", head]
    told = _advised(tmp_path, monkeypatch, "--scenario", "iid", *options)
    command = shlex.split(told.strip().splitlines()[-1].removeprefix("Next: "))
    assert command[:2] == ["lastlayer", "fit"]
    assert "With --calibration 0.1" in told
    command[2:2] = ["--calibration", "0.1"]
    result = CliRunner().invoke(app, command[1:])
    assert result.exit_code == 0, result.output
    assert ll.HeadClassifier.load(command[-1]).head_.name == head.partition("+")[0]


def test_the_only_other_column_of_a_table_is_the_label(tmp_path, monkeypatch):
    told = _advised(tmp_path, monkeypatch, "--scenario", "iid", "--heads", "mean")
    assert told.startswith("240 rows of 6 features, 4 classes of 'kind'\n\nUse mean")
    command = shlex.split(told.strip().splitlines()[-1].removeprefix("Next: "))
    result = CliRunner().invoke(app, command[1:])
    assert result.exit_code == 0, result.output


def test_of_a_layer_on_several_tasks_the_next_command_learns_them_in_turn(tmp_path, monkeypatch):
    months = [f"2024-{1 + row % 3:02d}" for row in range(240)]
    options = ["--label", "kind", "--by", "month", "--heads", "cosine"]
    told = _advised(tmp_path, monkeypatch, *options, month=months)
    command = shlex.split(told.strip().splitlines()[-1].removeprefix("Next: "))
    assert command[:2] == ["python", "-c"]
    exec(compile(command[2], "next", "exec"), {})
    assert ll.HeadClassifier.load("my rows-cosine.safetensors").classes_.tolist() == list("0123")
    assert ", 4 classes of 'kind' in 3 tasks, one for each month\n" in told
    assert "mixed:month\n" not in told


def test_programs_get_json(tmp_path, monkeypatch):
    options = ["--label", "kind", "--scenario", "iid", "--heads", "slda,knn", "--json"]
    told = json.loads(_advised(tmp_path, monkeypatch, *options))
    assert told["head"] in told["answer"]
    assert told["next"].startswith("lastlayer fit 'my rows.parquet'")
    assert {row["head"] for row in told["candidates"]} == {"slda", "knn"}
    assert told["candidates"][0]["verdict"] == "advised"


def test_a_page_that_is_there_is_kept_unless_forced(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("mine")
    options = ["--label", "kind", "--scenario", "iid", "--heads", "slda", "--page", str(page)]
    with pytest.raises(AssertionError):
        _advised(tmp_path, monkeypatch, *options)
    assert page.read_text() == "mine"
    _advised(tmp_path, monkeypatch, *options, "--force")
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_an_embedding_is_for_a_table():
    options = ["--embedding", "z", "--incremental", "2"]
    result = CliRunner().invoke(app, ["advise", "cifar10", *options])
    assert "--embedding is for tables, and cifar10 is not one" in str(result.exception)


def test_the_command_stopped_says_that_nothing_was_written(tmp_path, monkeypatch, capsys):
    """Ctrl-C comes from the advice itself, after some heads."""
    file, page = tmp_path / "mine.safetensors", tmp_path / "advice.html"
    blobs(noise=1.5).save(file)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lastlayer.advice.advise", interrupted)
    words = ["lastlayer", "advise", file, "--incremental", "3", "--page", page]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "stopped: nothing was written\n"
    assert not page.exists()


def test_the_command_wants_one_stream(tmp_path):
    result = CliRunner().invoke(app, ["advise", "mine.safetensors", "--by", "a", "--scenario", "b"])
    assert isinstance(result.exception, OptionError)
    assert "choose one, got b and mixed:a" in str(result.exception)


def test_without_a_stream_everything_comes_at_once(tmp_path, monkeypatch):
    """As ``ll.advise(data)`` lays it out; and a label that is missing is what is told of."""
    told = _advised(tmp_path, monkeypatch, "--label", "kind", "--heads", "mean,slda")
    asked = _advised(
        tmp_path, monkeypatch, "--scenario", "iid", "--label", "kind", "--heads", "mean,slda"
    )
    note = "Everything at once: --incremental, --by or --scenario names a stream to judge by\n"
    assert note in told
    assert note not in asked
    drop = re.compile(r"[\d.]+ µs")
    assert drop.sub("", told).replace(note, "") == drop.sub("", asked)
    frame = pl.read_parquet("my rows.parquet").with_columns(other=pl.lit("a"))
    frame.write_parquet("two.parquet")
    result = CliRunner().invoke(app, ["advise", "two.parquet"])
    assert "label" in str(result.exception)
    assert "--incremental" not in str(result.exception)
