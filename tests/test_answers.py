"""Learning finer labels to answer the coarser ones."""

import json
from pathlib import Path

import numpy as np
import onnx
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import lastlayer as ll
from lastlayer.cli import app
from lastlayer.errors import LabelError, MergeError, OptionError, UnsupportedError
from lastlayer.live import LiveHead

KIND = {"wren": "bird", "robin": "bird", "pike": "fish", "carp": "fish"}
PLACES = {"wren": (0, 0), "robin": (9, 9), "pike": (0, 9), "carp": (9, 0)}


def animals(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, species and kinds: no line parts the kinds."""
    random = np.random.default_rng(seed)
    species = random.choice(list(KIND), n)
    z = np.array([PLACES[name] for name in species]) + random.normal(size=(n, 2))
    return z, species, np.array([KIND[name] for name in species])


def table(path: Path, **drawn: int) -> Path:
    z, species, kind = animals(**drawn)
    pl.DataFrame({"z_0": z[:, 0], "z_1": z[:, 1], "kind": kind, "species": species}).write_csv(path)
    return path


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_it_answers_what_labels_stand_for(tmp_path: Path) -> None:
    z, species, kind = animals()
    clf = ll.HeadClassifier("slda", answers=KIND).fit(z, species)
    plain = ll.HeadClassifier("slda").fit(z, species)
    assert clf.classes_.tolist() == ["bird", "fish"]
    assert clf.score(z, kind) == 1
    assert ll.HeadClassifier("slda").fit(z, kind).score(z, kind) < 0.8
    assert clf.predict(z).tolist() == [KIND[name] for name in plain.predict(z)]
    probable, of = clf.predict_proba(z), plain.predict_proba(z)  # carp, pike, robin, wren
    np.testing.assert_allclose(probable[:, 1], of[:, :2].sum(axis=1))
    logits = plain.decision_function(z)
    expected = logits[:, :2].max(axis=1) - logits[:, 2:].max(axis=1)
    np.testing.assert_allclose(clf.decision_function(z), expected)
    clf.save(tmp_path / "head.safetensors")
    again = ll.HeadClassifier.load(tmp_path / "head.safetensors")
    assert again.answers == KIND
    np.testing.assert_array_equal(again.predict_proba(z), probable)
    assert again.merge(clf).score(z, kind) == 1
    numbers = ll.HeadClassifier("slda", answers={n: n // 2 for n in range(4)})
    numbers.fit(z, np.unique(species, return_inverse=True)[1])
    numbers.save(tmp_path / "numbers.safetensors")
    assert ll.HeadClassifier.load(tmp_path / "numbers.safetensors").predict(z).tolist() == (
        (kind == "bird").astype(int).tolist()
    )


def test_labels_without_an_answer_are_refused() -> None:
    z, species, kind = animals()
    with pytest.raises(LabelError, match="answers has none for carp, pike"):
        ll.HeadClassifier(answers={"wren": "bird", "robin": "bird"}).fit(z, species)
    clf = ll.HeadClassifier(answers=KIND).fit(z, species)
    with pytest.raises(LabelError, match="answers has none for owl"):
        clf.partial_fit(z[:2], ["owl", "wren"])
    assert clf.score(z, kind) == 1
    with pytest.raises(MergeError, match="the other does not"):
        clf.merge(ll.HeadClassifier().fit(z, species))
    with pytest.raises(MergeError, match="pike must stand for one label, got fish and food"):
        clf.merge(ll.HeadClassifier(answers={**KIND, "pike": "food"}).fit(z, species))
    with pytest.raises(UnsupportedError, match="this one answers coarser ones"):
        LiveHead(clf)


def test_verbs_learn_the_finer_and_answer_the_coarser(tmp_path: Path) -> None:
    rows, later = table(tmp_path / "a.csv"), table(tmp_path / "b.csv", seed=1)
    head, out = tmp_path / "head.safetensors", tmp_path / "labels.csv"
    fit = ("fit", rows, "--label", "species", "--answer", "kind", "--head", "slda", "--out", head)
    assert "4 classes, answered as 2 labels" in run(*fit)
    assert "answers by 2 coarser labels: bird, fish" in run("show", head)
    for label in ("kind", "species"):
        said = run("predict", head, later, "--label", label, "--out", out, "--force", "--top", 2)
        assert "100.0 % right" in said
    found = pl.read_csv(out)
    assert found["label"].to_list() == animals(seed=1)[2].tolist()
    np.testing.assert_allclose(found["probability"] + found["probability_2"], 1)
    run("fit", later, "--label", "species", "--head", head)
    run("forget", head, later, "--label", "species")
    run("calibrate", head, later, "--label", "species")
    run("export", head, tmp_path / "head.onnx")
    about = {one.key: one.value for one in onnx.load(tmp_path / "head.onnx").metadata_props}
    names, answers = (json.loads(about[key]) for key in ("class_names", "answers"))
    assert [KIND[name] for name in names] == answers

    features = tmp_path / "a.safetensors"
    run("import", rows, "--embedding", "z_*", "--label", "species", "--domain", "kind",
        "--test", 0.2, "--out", features)  # fmt: skip
    clf = ll.fit(ll.load_features(features), "slda", answer="kind")
    assert clf.classes_.tolist() == ["bird", "fish"]
    with pytest.raises(LabelError, match="goes with robin and wren: is 'species' the coarser"):
        ll.fit(features, "slda", label="kind", answer="species")
    with pytest.raises(LabelError, match="carp must stand for one label, got fish and food"):
        clf.answer_by({"carp": "food"})
    plain = ll.fit(features, "slda")
    with pytest.raises(OptionError, match="answers with the labels that it learns"):
        ll.fit(features, plain, answer="kind")


def test_shards_have_no_coarser_labels(tmp_path: Path) -> None:
    table(tmp_path / "a.csv")
    with pytest.raises(OptionError, match="shards are read without coarser labels"):
        ll.fit(str(tmp_path / "*.csv"), "slda", label="species", answer="kind")


def test_advice_ends_with_a_command_that_learns_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows = table(tmp_path / "a.csv", n=600)
    features = tmp_path / "a.safetensors"
    run("import", rows, "--embedding", "z_*", "--label", "species", "--domain", "kind",
        "--test", 0.2, "--out", features)  # fmt: skip
    page = tmp_path / "page.html"
    said = run(
        "advise",
        features,
        "--label",
        "kind",
        "--scenario",
        "iid",
        "--heads",
        "mean,slda",
        "--page",
        page,
    )
    told = "--label species --answer kind"
    assert "let it learn the finer labels 'species' to answer 'kind': it gets 100.0 %" in said
    command = said.splitlines()[-1]
    assert command.startswith("Next: lastlayer fit")
    assert told in command
    words = command.removeprefix("Next: lastlayer ").split()
    words[words.index("--out") + 1] = str(tmp_path / "advised.safetensors")
    assert "4 classes, answered as 2 labels" in run(*words)
