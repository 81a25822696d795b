"""Labels from the shell: audited, left out, corrected."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from newcomer import run

import lastlayer as ll

pytestmark = pytest.mark.usefixtures("newcomers_folder")


def test_wrong_labels_are_found_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv("birds.csv")
    names = frame["species"].unique().sort().to_list()
    wrong = {
        i: names[(names.index(frame["species"][i]) + 1 + i // 6 % 2) % 3] for i in range(0, 60, 6)
    }
    given = [wrong.get(i, name) for i, name in enumerate(frame["species"])]
    frame.with_columns(species=pl.Series(given)).write_csv("wrong.csv")
    before = Path("wrong.csv").read_bytes()
    asked = "audit wrong.csv --label species --out suspects.csv --page audit.html"
    assert run(monkeypatch, asked) == 0
    said = capsys.readouterr().out
    assert "of 300 labels are wrong" in said
    assert "The range assumes that mistakes hit all rows of a class alike." in said
    assert "note: No other split has labels" in said
    suspects = pl.read_csv("suspects.csv")
    assert set(suspects["row"]) == set(wrong)
    assert all(suspects["suggestion"] == pl.Series([frame["species"][i] for i in suspects["row"]]))
    assert Path("wrong.csv").read_bytes() == before
    assert "<h2" in Path("audit.html").read_text(encoding="utf-8")
    fit = "fit wrong.csv --label species --head slda --force --out head.safetensors"
    assert run(monkeypatch, f"{fit} --drop suspects.csv") == 0
    said = capsys.readouterr().out
    assert "left out 10 rows of suspects.csv" in said
    assert "on 290 rows" in said
    assert run(monkeypatch, f"{fit} --relabel suspects.csv") == 0
    said = capsys.readouterr().out
    assert "relabelled 10 rows of suspects.csv" in said
    assert "on 300 rows" in said
    counts = dict(frame["species"].value_counts().rows())
    clf = ll.HeadClassifier.load("head.safetensors")
    assert dict(zip(clf.labels_.names, clf.head_.class_counts.tolist(), strict=True)) == counts
    assert run(monkeypatch, f"{asked} --force --count 5") == 0
    assert pl.read_csv("suspects.csv").height == 5


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("audit birds.csv --label species --out birds.csv --force", "would overwrite an input"),
        ("audit birds.csv --label species --count 0", "--count must be at least 1"),
        ("audit birds.csv --label species --count 5", "give --out too"),
        ("audit birds.csv --label species --out a.csv --page a.csv", "must be two files"),
        ("audit birds.csv --label species --page birds.csv --force", "would overwrite an input"),
        ("fit birds.csv --label species --head slda --drop customer.feather --out a", "lack row"),
        ("audit birds.csv --label species --out a.txt", ".csv or .parquet"),
        ("audit birds.csv --label species --head linear", "cannot leave rows out"),
        ("fit birds.csv --label species --head slda --drop birds.csv --out birds.csv --force",
         "would overwrite an input"),
    ],
)  # fmt: skip
def test_mistakes_end_in_a_line(
    command: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, command) == 1
    assert says in " ".join(capsys.readouterr().err.split())


def test_rows_to_label_next_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "fit birds.csv --label species --head slda --out h.safetensors") == 0
    pool = pl.read_csv("birds.csv").drop("species").with_row_index("name")
    pool.write_csv("pool.csv")
    asked = "next h.safetensors pool.csv --embedding z_* --count 7 --id name --out to-label.csv"
    assert run(monkeypatch, asked) == 0
    said = capsys.readouterr().out
    assert "7 rows to label, the most useful first" in said
    assert "'label' is the head's own guess" in said
    chosen = pl.read_csv("to-label.csv")
    assert chosen.columns == ["row", "name", "label", "margin"]
    assert (chosen["row"] == chosen["name"]).all()
    cold = "next none pool.csv --embedding z_* --count 3 --out cold.csv"
    assert run(monkeypatch, cold) == 0
    assert "guess" not in capsys.readouterr().out
    assert pl.read_csv("cold.csv").columns == ["row"]
    assert run(monkeypatch, cold.replace("none", "slda") + " --force") == 1
    assert "no such file: slda; it must be a lastlayer head file" in capsys.readouterr().err


def test_no_label_that_looks_wrong_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    z = np.eye(3)[np.arange(300) % 3] * 50 + np.random.default_rng(0).normal(size=(300, 3))
    names = [f"class {row % 3}" for row in range(300)]
    frame = pl.DataFrame(z, schema=["z_0", "z_1", "z_2"])
    frame.with_columns(species=pl.Series(names)).write_csv("clear.csv")
    assert run(monkeypatch, "audit clear.csv --label species --out none.csv") == 0
    said = capsys.readouterr().out
    assert said.startswith("None of 300 labels looks wrong.\nPredicted from the other rows")


def test_suspects_of_other_rows_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "audit birds.csv --label species --out s.csv --count 3") == 0
    pl.read_csv("birds.csv").reverse().sample(fraction=1, shuffle=True, seed=1).write_csv("o.csv")
    assert run(monkeypatch, "fit o.csv --label species --head slda --drop s.csv --out h.st") == 1
    said = capsys.readouterr().err
    assert "(counted from 0)" in said
    assert "audit these rows, and take that table" in " ".join(said.split())


def test_the_least_share_of_unknown_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = "fit birds.csv --label species --head slda --calibration 0.1 --out h.safetensors"
    assert run(monkeypatch, fit) == 0
    assert "with these, --unknown must be at least 0.0" in capsys.readouterr().out
