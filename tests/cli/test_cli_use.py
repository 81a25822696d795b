"""A head from the shell: fitted, continued, asked and made to forget, as a newcomer would."""

import re
from pathlib import Path

import newcomer
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from newcomer import birds, run

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.estimator.fitting import fit, forget
from lastlayer.results.store import open_store

Patch = pytest.MonkeyPatch
Printed = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("newcomers_folder")


@pytest.fixture(autouse=True)
def _one_key(monkeypatch: Patch) -> None:
    """Key the fingerprints of forgotten rows alike in heads that are compared."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * (2 * size))


def assert_same_head(path: Path | str, clf: ll.HeadClassifier) -> None:
    clf.save("expected.safetensors")
    assert Path(path).read_bytes() == Path("expected.safetensors").read_bytes()


def test_features_of_another_length_than_a_rate_suits_are_told_of(
    monkeypatch: Patch, capsys: Printed
) -> None:
    frame = birds()
    frame[[f"z_{i}" for i in range(8)]] *= 1e-6
    frame.to_csv("tiny.csv", index=False)
    fit = "fit tiny.csv --label species --out h.safetensors --force --head"
    assert run(monkeypatch, f"{fit} linear") == 0
    found = re.search(r"note: .* suits 16: try --feature-scale (\S+),", capsys.readouterr().out)
    assert found is not None
    for settings in (f"linear --feature-scale {found[1]}", "cosine", "slda"):
        assert run(monkeypatch, f"{fit} {settings}") == 0
        assert "note" not in capsys.readouterr().out
    assert ll.HeadClassifier.load("h.safetensors").feature_scale == 1.0
    nothing = frame.assign(**dict.fromkeys([f"z_{i}" for i in range(8)], 0.0))
    nothing.to_csv("zeros.csv", index=False)  # no scale would make these longer
    assert run(monkeypatch, fit.replace("tiny", "zeros") + " linear") == 0
    assert "note" not in capsys.readouterr().out
    assert run(monkeypatch, f"{fit} linear --feature-scale {found[1]}") == 0
    clf = ll.HeadClassifier.load("h.safetensors")
    assert clf.feature_scale == float(found[1])
    assert clf.score(frame.drop(columns="species"), frame["species"].to_numpy()) > 0.9


def test_the_whole_way(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, "import birds.csv --label species --test 0.1 --out b.safetensors") == 0
    assert run(monkeypatch, "fit b.safetensors --head slda --out head.safetensors") == 0
    assert "trained slda on 270 rows; 3 classes" in capsys.readouterr().out
    clf = fit(ll.load_features("b.safetensors"), "slda")
    assert_same_head("head.safetensors", clf)

    week = "fit week.parquet --label species --head head.safetensors"
    assert run(monkeypatch, week) == 0
    assert "trained slda further on 20 rows; 4 classes, 1 new: owl\n" in capsys.readouterr().out
    fit("week.parquet", clf, label="species")
    assert_same_head("head.safetensors", clf)

    ask = "predict head.safetensors unknown.jsonl --embedding z_* --out labels.csv"
    assert run(monkeypatch, ask) == 0
    labels = pl.read_csv("labels.csv")
    assert labels.columns == ["label", "probability"]
    assert labels["label"].to_list() == birds(40, seed=1).species.tolist()
    assert labels["probability"].is_between(0.5, 1).all()
    assert run(monkeypatch, "predict head.safetensors known.csv --label species --out l.csv") == 0
    assert "100.0 % right" in capsys.readouterr().out

    gone = pd.read_feather("customer.feather")
    rows = ll.load_features("b.safetensors").train.z.numpy()
    known = [(rows == z).all(axis=1).any() for z in gone.filter(like="z_").to_numpy()]
    gone[known].to_csv("gone.csv", index=False)
    assert run(monkeypatch, "forget head.safetensors gone.csv --label species") == 0
    assert "these very samples cannot be proven" in capsys.readouterr().out
    forget(clf, "gone.csv", label="species")
    assert_same_head("head.safetensors", clf)

    assert run(monkeypatch, "show head.safetensors") == 0
    shown = capsys.readouterr().out
    assert "a head, slda" in shown
    assert f"owl{' ' * 4}20" in shown
    assert "can: keep learning, be an nn.Linear, be merged with another, forget samples" in shown


def test_rows_are_forgotten_once_unless_again_is_said(monkeypatch: Patch, capsys: Printed) -> None:
    made = "fit birds.csv --label species --head slda --calibration 0.2 --out h.safetensors"
    assert run(monkeypatch, made) == 0
    before = Path("h.safetensors").read_bytes()
    ask = "forget h.safetensors birds.csv --label species"
    assert run(monkeypatch, ask) == 1
    said = capsys.readouterr().err
    assert "60 of these 300 rows were held out to calibrate with" in said
    assert "--skip-not-learned leaves them out" in said
    assert "skip_not_learned" not in said
    assert Path("h.safetensors").read_bytes() == before
    some = f"{ask} --class kiwi --skip-not-learned --out some.safetensors"
    assert run(monkeypatch, some) == 0
    left_out = "20 were never learned (held out to calibrate with) and were left out"
    assert f"forgot 80 rows of kiwi; {left_out}" in capsys.readouterr().out
    again = f"{some} --force".replace("h.safetensors", "some.safetensors", 1)
    told = ll.HeadClassifier.load("some.safetensors").origin_
    assert run(monkeypatch, again) == 0
    assert "forgot 0 rows of kiwi; 80 were forgotten before" in capsys.readouterr().out
    assert ll.HeadClassifier.load("some.safetensors").origin_ == told  # nothing was done
    assert run(monkeypatch, f"{ask} --skip-not-learned --again") == 1
    assert "choose one" in capsys.readouterr().err
    learned = fit("birds.csv", "slda", label="species", calibration=0.2)
    rows, known = pd.read_csv("birds.csv"), []
    for row in range(len(rows)):
        try:
            learned.forget(rows.iloc[[row], :-1].astype("float32"), rows.species[[row]])
            known.append(row)
        except ValueError:
            continue
        if len(known) == 10:
            break
    rows.iloc[known].to_csv("gone.csv", index=False)
    ask = "forget h.safetensors gone.csv --label species"
    assert run(monkeypatch, ask) == 0
    assert run(monkeypatch, ask) == 1
    assert "10 of these 10 rows were forgotten before" in capsys.readouterr().err
    # The same kinds of birds are many: without these ten twice, what remains is possible.
    assert run(monkeypatch, f"{ask} --again") == 0


@pytest.mark.parametrize("name", HEADS)
def test_every_head_goes_on_to_the_bit(monkeypatch: Patch, name: str) -> None:
    """What the shell makes in three steps is what Python makes without a file between them."""
    options = {"width": 50} if name.startswith("random_") else {}
    typed = " ".join(f"--option {k}={v}" for k, v in options.items())
    made = f"fit birds.csv --label species --head {name} {typed} --out h.safetensors"
    assert run(monkeypatch, made) == 0
    assert run(monkeypatch, "fit week.parquet --label species --head h.safetensors --epochs 2") == 0
    clf = fit("birds.csv", name, label="species", options=options or None)
    fit("week.parquet", clf, label="species", epochs=2)
    if clf.head_.abilities.forgets:
        assert run(monkeypatch, "forget h.safetensors week.parquet --label species") == 0
        forget(clf, "week.parquet", label="species")
    assert_same_head("h.safetensors", clf)


def test_columns_of_a_table_are_taken_by_name(monkeypatch: Patch, capsys: Printed) -> None:
    """Here a range of columns is in the order of the file: another file may have another."""
    frame = birds()
    names = {f"z_{i}": name for i, name in enumerate(["beak", "wing", "leg", "tail", *"abcd"])}
    frame = frame.rename(columns=names)
    mixed = frame[["beak", "leg", "a", "wing", "c", "b", "tail", "d", "species"]]
    frame.to_csv("straight.csv", index=False)
    mixed.to_csv("mixed.csv", index=False)
    of = "--embedding beak:d --label species"
    assert run(monkeypatch, f"fit straight.csv {of} --head slda --out h.safetensors") == 0
    clf = fit("straight.csv", "slda", embedding="beak:d", label="species")
    assert_same_head("h.safetensors", clf)
    assert run(monkeypatch, f"predict h.safetensors mixed.csv {of} --out l.csv") == 0
    assert "100.0 % right" in capsys.readouterr().out
    assert run(monkeypatch, f"fit mixed.csv {of} --head h.safetensors") == 0
    assert run(monkeypatch, f"calibrate h.safetensors mixed.csv {of} --rows train") == 0
    assert run(monkeypatch, f"forget h.safetensors mixed.csv {of}") == 0
    again = ll.HeadClassifier.load("h.safetensors")
    again.head_.calibration = None
    z = frame.drop(columns="species")
    np.testing.assert_allclose(again.predict_proba(z), clf.predict_proba(z), atol=1e-9)
    frame.rename(columns={"leg": "foot"}).to_csv("other.csv", index=False)
    capsys.readouterr()
    for verb in (
        f"fit other.csv {of} --head h.safetensors",
        f"predict h.safetensors other.csv {of} --out o.csv",
    ):
        assert run(monkeypatch, verb) == 1
        assert "those that the head has learned: 'leg' is missing" in capsys.readouterr().err


def test_a_class_is_forgotten_by_its_name(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head mean --out h.safetensors") == 0
    assert run(monkeypatch, "forget h.safetensors --class kiwi --out less.safetensors") == 0
    assert "forgot 100 rows of kiwi" in capsys.readouterr().out
    clf = ll.HeadClassifier.load("less.safetensors")
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [100, 100, 0]
    assert ll.load_head("h.safetensors").class_names == ["emu", "ibis", "kiwi"]
    assert run(monkeypatch, "forget h.safetensors --class kivi") == 1
    assert "unknown class 'kivi'; did you mean 'kiwi'?" in capsys.readouterr().err
    assert run(monkeypatch, "forget h.safetensors birds.csv --label species --class emu") == 0
    assert ll.HeadClassifier.load("h.safetensors").head_.seen.tolist() == [False, True, True]


WRONG = {
    "unknown labels": ("forget h.safetensors week.parquet --label species", "unknown label 'owl'"),
    "never seen": ("forget h.safetensors known3.csv --label species", "were never observed"),
    "too many": ("forget h.safetensors twice.csv --label species", "only 100 were learned"),
    "other size": (
        "forget h.safetensors narrow.csv --label species",
        "features must have 8 columns, as the head has learned, got 7: z_7 is missing",
    ),
    "other size to learn": (
        "fit narrow.csv --label species --head h.safetensors",
        "got 7: z_7 is missing",
    ),
    "other size to ask": ("predict h.safetensors gap.csv --out l.csv", "got 6: z_2, z_5 are miss"),
    "other size to calibrate": (
        "calibrate h.safetensors gap.csv --rows all --label species",
        "got 6: z_2, z_5 are missing",
    ),
    "another first": ("predict h.safetensors late.csv --out l.csv", "got 7: columns z_1 to z_7"),
    "one more": ("predict h.safetensors wide.csv --out l.csv", "got 9: columns z_0 to z_8"),
    "other vectors": ("predict h.safetensors vectors.parquet --out l.csv", "learned, got 3"),
    "tables only": (
        "predict birds.csv birds.csv --out l.csv",
        "the first argument must be a head, as lastlayer fit writes it, but birds.csv is a table",
    ),
    "a table to go on with": (
        "fit birds.csv --label species --head week.parquet --out x.safetensors",
        "expected a safetensors file, but week.parquet is not one",
    ),
    "no rows": (
        "forget h.safetensors birds.csv --label species --class owl",
        "no rows of 'owl' to forget",
    ),
    "nothing": ("forget h.safetensors", "pass rows to forget, or a class"),
    "settings": ("fit birds.csv --label species --head h.safetensors --lr 1", "leave out lr"),
    "no out": ("fit birds.csv --label species --head slda", "a new head needs a file"),
    "no force": ("fit birds.csv --label species --head slda --out h.safetensors", "--force"),
    "over the input": (
        "fit birds.csv --label species --head h.safetensors --out birds.csv --force",
        "would overwrite an input",
    ),
    "split": (
        "predict h.safetensors birds.csv --rows tset --out l.csv",
        "rows must be 'train' or 'validation' or",
    ),
    "table": ("predict h.safetensors birds.csv --out labels.txt", "a .csv or .parquet file"),
    "head": ("fit birds.csv --label species --head sldaa --out x.safetensors", "mean 'slda'"),
    "option": ("fit birds.csv --label species --head knn --option k --out x.safetensors", "=value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_changes_nothing(monkeypatch: Patch, capsys: Printed, case: str) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head slda --out h.safetensors") == 0
    frame = birds()
    outliers = birds(9, seed=5)[lambda f: f.species != "owl"]
    outliers = outliers.assign(**{f"z_{i}": 60.0 + i * outliers.index for i in range(newcomer.H)})
    outliers.to_csv("known3.csv", index=False)
    pd.concat([frame[frame.species == "emu"]] * 2).to_csv("twice.csv", index=False)
    frame.drop(columns="z_7").to_csv("narrow.csv", index=False)
    frame.drop(columns=["z_2", "z_5"]).to_csv("gap.csv", index=False)
    frame.drop(columns="z_0").to_csv("late.csv", index=False)
    frame.assign(z_8=0.0).to_csv("wide.csv", index=False)
    pd.DataFrame({"z": [[1.0, 2.0, 3.0]]}).to_parquet("vectors.parquet")
    files = {path: path.read_bytes() for path in Path().iterdir()}
    capsys.readouterr()
    command, message = WRONG[case]
    assert run(monkeypatch, command) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().iterdir()} == files


def test_a_head_of_a_newer_version_is_refused(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head slda --out h.safetensors") == 0
    state, document = read_tensors("h.safetensors", "head")
    for change, message in (({"format": 4}, "head format 4"), ({"tomorrow": {}}, "tomorrow")):
        write_tensors("h.safetensors", "head", state, {**document, **change})
        before = Path("h.safetensors").read_bytes()
        for command in (
            "fit week.parquet --label species --head h.safetensors",
            "show h.safetensors",
            "forget h.safetensors --class emu",
            "predict h.safetensors birds.csv --out l.csv",
        ):
            assert run(monkeypatch, command) == 1
            printed = capsys.readouterr().err
            assert message in printed
            assert "upgrade lastlayer" in printed
        assert Path("h.safetensors").read_bytes() == before


def test_a_head_changed_by_another_meanwhile_is_left_alone(
    monkeypatch: Patch, capsys: Printed
) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head mean --out h.safetensors") == 0
    fit("birds.csv", "median", label="species").save("other.safetensors")
    learn = ll.HeadClassifier.learn

    def slowly(self: ll.HeadClassifier, *rows: object) -> object:
        Path("other.safetensors").replace("h.safetensors")
        return learn(self, *rows)  # type: ignore[arg-type]

    monkeypatch.setattr(ll.HeadClassifier, "learn", slowly)
    assert run(monkeypatch, "fit week.parquet --label species --head h.safetensors") == 1
    assert "changed by another process meanwhile" in capsys.readouterr().err
    assert ll.load_head("h.safetensors").name == "median"


def test_rows_of_each_split(monkeypatch: Patch, capsys: Printed) -> None:
    frame = birds().assign(split=["train"] * 200 + ["test"] * 100 + ["validation"] * 100)
    frame.to_csv("split.csv", index=False)
    assert run(monkeypatch, "import split.csv --label species --out s.safetensors") == 0
    for source in ("split.csv --label species", "s.safetensors"):
        assert run(monkeypatch, f"fit {source} --head mean --out h.safetensors --force") == 0
        assert run(monkeypatch, f"fit {source} --head h.safetensors --rows validation") == 0
        assert run(monkeypatch, f"predict h.safetensors {source} --out l.parquet --force") == 0
        printed = capsys.readouterr().out
        assert "trained mean on 200 rows" in printed
        assert "trained mean further on 100 rows" in printed
        assert all(f"% right in {split}" in printed for split in ("train", "test", "validation"))
        sizes = pl.read_parquet("l.parquet").group_by("split").len().sort("split")["len"].to_list()
        assert sizes == [100, 200, 100]


def test_what_is_done_with_a_validation_split_is_told(monkeypatch: Patch, capsys: Printed) -> None:
    frame = birds(300).assign(split=(["train"] * 7 + ["validation"] * 2 + ["test"]) * 30)
    frame.to_csv("split.csv", index=False)
    assert run(monkeypatch, "import split.csv --label species --out s.safetensors") == 0
    for command, told in {
        "compare s.safetensors --incremental 2 --heads mean --orders 1": "rows are not used.",
        "advise s.safetensors --incremental 2 --heads mean": "On 60 validation rows, used once",
    }.items():
        capsys.readouterr()
        assert run(monkeypatch, command) == 0
        assert told in capsys.readouterr().out


def test_show_of_everything(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, "import birds.csv --label species --out b.safetensors") == 0
    assert run(monkeypatch, "fit b.safetensors --head cosine+single --out c.safetensors") == 0
    assert run(monkeypatch, "fit b.safetensors --head knn --out k.safetensors") == 0
    expected = {
        "b.safetensors": ("features", "emu    80     20", "made: lastlayer import FILE"),
        "c.safetensors": ("a head, cosine+single", "can: keep learning, be an nn.Linear", "kiwi"),
        "k.safetensors": ("a head, knn", "the samples themselves are checked", "k=5"),
        "birds.csv": ("a table of another program", "columns: z_0, z_1", "can be used by: import"),
    }
    for file, words in expected.items():
        capsys.readouterr()
        assert run(monkeypatch, "show", file) == 0
        printed = capsys.readouterr().out
        assert all(word in printed for word in (*words, "bytes")), printed
    with open_store(Path("study")):
        pass
    assert run(monkeypatch, "show study") == 0
    assert "the results of a study" in capsys.readouterr().out
    Path("notes.txt").write_text("notes")
    assert run(monkeypatch, "show notes.txt") == 1
    assert run(monkeypatch, "show nothing") == 1


def test_many_classes_are_cut(monkeypatch: Patch, capsys: Printed) -> None:
    z = np.eye(64, dtype=np.float32).repeat(2, axis=0)
    ll.Features.from_arrays(z, np.arange(64).repeat(2), test=(z, np.arange(64).repeat(2))).save("m")
    fit("m", "linear").save("m.safetensors")
    for option, more in (("", "and 44 more: --all lists them"), (" --all", "  63")):
        assert run(monkeypatch, f"show m.safetensors{option}") == 0
        assert more in capsys.readouterr().out


def test_help_groups_the_verbs(monkeypatch: Patch, capsys: Printed) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    groups = {"Data": ("import", "extract", "show"), "Choose a head": ("advise", "compare", "list")}
    groups |= {
        "Use it": ("fit", "predict", "calibrate", "forget", "export"),
        "Study": ("run", "report"),
    }
    places = [printed.index(f"─ {group} ─") for group in groups] + [len(printed)]
    assert places == sorted(places)
    for begin, end, verbs in zip(places, places[1:], groups.values(), strict=False):
        assert all(f"│ {verb} " in printed[begin:end] for verb in verbs)


def test_integers_stay_integers(monkeypatch: Patch) -> None:
    """A classifier made in Python with numbers goes on in the shell with the same numbers."""
    frame = birds().assign(species=lambda f: f.species.astype("category").cat.codes + 5)
    frame.to_csv("coded.csv", index=False)
    z, y = frame.filter(like="z_").to_numpy(), frame.species.to_numpy()
    ll.HeadClassifier("mean").fit(z, y).save("h.safetensors")
    assert run(monkeypatch, "fit coded.csv --label species --head h.safetensors") == 0
    clf = ll.HeadClassifier.load("h.safetensors")
    assert clf.classes_.tolist() == [5, 6, 7, 8]
    assert torch.equal(clf.head_.statistics.count, torch.full((4,), 200))  # type: ignore[union-attr]
    assert run(monkeypatch, "fit birds.csv --label species --head h.safetensors") == 1


@pytest.mark.parametrize("page", ["README.md", "docs/use.md"])
def test_the_commands_of_the_pages_work(monkeypatch: Patch, page: str) -> None:
    """Those of this file; advise is tested where it is."""
    text = (Path(__file__).parents[2] / page).read_text()
    verbs = ("import", "fit", "predict", "forget", "show")
    typed = [line.partition("#")[0] for line in text.splitlines() if line.startswith("lastlayer ")]
    commands = [line.split()[1:] for line in typed if line.split()[1] in verbs]
    commands = [command for command in commands if "cifar10" not in command]  # in test_readme
    frame = birds()
    frame[frame.species != "owl"].to_csv("birds.csv", index=False)
    frame[frame.species != "owl"][:10].to_csv("customer.csv", index=False)
    birds(40, seed=1).drop(columns="species").to_csv("new.csv", index=False)
    assert len(commands) >= 4
    for command in commands:
        assert run(monkeypatch, " ".join(command)) == 0, command
    (head,) = {command[1] for command in commands if command[0] == "predict"}
    assert ll.load_head(head).class_names is not None


def test_heads_are_merged(monkeypatch: Patch, capsys: Printed) -> None:
    frame = birds()
    for name, part in (("a", frame[::-2]), ("b", frame[::2])):
        part.to_csv(f"{name}.csv", index=False)
        fit = f"fit {name}.csv --label species --rows all --head slda --out {name}.safetensors"
        assert run(monkeypatch, f"{fit} --calibration 0.1") == 0
    capsys.readouterr()
    merge = "merge a.safetensors b.safetensors --out ab.safetensors"
    assert run(monkeypatch, merge) == 0
    printed = capsys.readouterr().out
    clf = ll.HeadClassifier.load("ab.safetensors")
    n, classes = int(clf.head_.class_counts.sum()), frame["species"].nunique()
    assert f"merged 2 slda heads: {n} rows; {classes} classes" in printed
    assert "calibration out of date" in printed
    assert run(monkeypatch, "show ab.safetensors") == 0
    assert "merged 2 heads of" in capsys.readouterr().out
    assert run(monkeypatch, merge) == 1
    assert "ab.safetensors already exists" in capsys.readouterr().err
    assert run(monkeypatch, f"{merge} --force") == 0
    assert run(monkeypatch, "merge a.safetensors b.safetensors --out a.safetensors --force") == 1
    assert "would overwrite an input" in capsys.readouterr().err
    assert run(monkeypatch, "merge a.safetensors ./a.safetensors --out c.safetensors") == 1
    assert "given twice: its rows would count twice" in capsys.readouterr().err


def test_answers_carry_a_column_and_more_than_one_label(monkeypatch: Patch) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head slda --out h.safetensors") == 0
    frame = birds(40).assign(photo=[f"p{n}.jpg" for n in range(40)]).drop(columns="species")
    frame.to_csv("new.csv", index=False)
    told = "--embedding z_* --id photo --top 2"
    assert run(monkeypatch, f"predict h.safetensors new.csv --out a.csv {told}") == 0
    table = pl.read_csv("a.csv")
    assert table.columns == ["photo", "label", "probability", "label_2", "probability_2"]
    assert table["photo"].to_list() == frame["photo"].to_list()
    proba = ll.HeadClassifier.load("h.safetensors").predict_proba(frame.drop(columns="photo"))
    assert np.allclose(np.sort(proba)[:, :-3:-1], table[["probability", "probability_2"]])
    names = np.array(["emu", "ibis", "kiwi"])[np.argsort(-proba)[:, :2]]
    assert table[["label", "label_2"]].to_numpy().tolist() == names.tolist()
    plain = "predict h.safetensors new.csv --embedding z_* --out b.csv"
    assert run(monkeypatch, plain) == 0
    assert pl.read_csv("b.csv").equals(table[["label", "probability"]])


def test_a_forgotten_class_is_no_answer_however_many_are_asked_for(monkeypatch: Patch) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head qda --out h.safetensors") == 0
    assert run(monkeypatch, "forget h.safetensors --class ibis") == 0
    asked = "predict h.safetensors birds.csv --top 3 --out a.csv --force"
    assert run(monkeypatch, asked) == 0
    table = pl.read_csv("a.csv")
    assert table.columns == ["label", "probability", "label_2", "probability_2"]
    assert set(table["label_2"]) == {"emu", "kiwi"}
    assert run(monkeypatch, "fit birds.csv --label species --head h.safetensors") == 0
    assert run(monkeypatch, asked) == 0
    assert set(pl.read_csv("a.csv")["label_3"]) == {"emu", "ibis", "kiwi"}


def test_an_unknown_row_has_none_of_its_labels(monkeypatch: Patch) -> None:
    fit = "fit birds.csv --label species --head slda --calibration 0.2 --out h.safetensors"
    assert run(monkeypatch, fit) == 0
    frame = birds(8)
    frame.loc[0, [f"z_{n}" for n in range(8)]] = 500.0
    frame.to_csv("new.csv", index=False)
    asked = "--label species --id species --top 9 --unknown 0.05"
    assert run(monkeypatch, f"predict h.safetensors new.csv --out a.parquet {asked}") == 0
    table = pl.read_parquet("a.parquet")
    assert table["species"].to_list() == frame["species"].to_list()
    assert table[0, "label"] is table[0, "label_3"] is None
    assert table[1, "label_3"] is not None


def test_a_table_of_answers_is_harmless_where_it_is_opened(monkeypatch: Patch) -> None:
    frame = birds(90)
    odd = {"emu": "=HYPERLINK(1)", "ibis": "\x1b[2Jgone", "kiwi": "-3", "owl": "@a,b"}
    frame["species"] = frame["species"].map(odd)
    frame.to_parquet("odd.parquet")
    assert run(monkeypatch, "fit odd.parquet --label species --head slda --out h.safetensors") == 0
    for file in ("a.csv", "a.parquet"):
        assert run(monkeypatch, f"predict h.safetensors odd.parquet --out {file}") == 0
    safe = {"'=HYPERLINK(1)", "\\x1b[2Jgone", "-3", "'@a,b"}
    assert set(pl.read_csv("a.csv", infer_schema=False)["label"]) == safe
    assert set(pl.read_parquet("a.parquet")["label"]) == set(odd.values())
    assert b"\x1b" not in Path("a.csv").read_bytes()


def test_nothing_is_drawn_where_a_file_has_its_own_split(
    monkeypatch: Patch, capsys: Printed
) -> None:
    birds(300).assign(split=(["train"] * 7 + ["test"] * 3) * 30).to_csv("split.csv", index=False)
    assert run(monkeypatch, "import split.csv --label species --out s.safetensors") == 0
    assert run(monkeypatch, "show s.safetensors") == 0
    assert "made: lastlayer import FILE --label species --out FILE" in capsys.readouterr().out
    assert run(monkeypatch, "import birds.csv --label species --out b.safetensors") == 0
    assert run(monkeypatch, "show b.safetensors") == 0
    assert "--test 0.2 --seed 0 --out FILE" in capsys.readouterr().out
