"""From the shell: rows held out, probabilities that mean something, and rows without a label."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest
from newcomer import birds, run

import lastlayer as ll
from lastlayer.errors import CalibrationWarning, NotCalibratedError

Patch = pytest.MonkeyPatch
Printed = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("newcomers_folder")


FIT = "fit birds.csv --label species --head slda --calibration 0.2 --out h.safetensors"


def test_the_whole_way(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, FIT) == 0
    printed = capsys.readouterr().out
    assert "trained slda on 240 rows; 3 classes" in printed
    assert "calibrated with 60 rows: temperature" in printed
    clf = ll.HeadClassifier.load("h.safetensors")
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [80, 80, 80]
    assert clf.get_params()["calibration"] == 0.2

    strange = birds(40, seed=1)
    numbers = [c for c in strange.columns if c.startswith("z_")]
    strange.loc[:4, numbers] += 50
    strange[strange.species != "owl"].to_csv("new.csv", index=False)
    ask = "predict h.safetensors new.csv --label species --unknown 0.05 --out l.csv"
    assert run(monkeypatch, ask) == 0
    printed, table = capsys.readouterr().out, pl.read_csv("l.csv")
    missing = table["label"].null_count()
    assert table["label"][:3].null_count() == 3
    assert 3 <= missing < table.height / 2
    share = 100 * missing / table.height
    assert f"{share:.1f} % unknown: {missing} rows have no label" in printed
    assert "100.0 % right of those not turned away" in printed
    assert "no class" not in printed
    strange.assign(species="larch").to_csv("larch.csv", index=False)
    ask = "predict h.safetensors larch.csv --label species --out larch-labels.csv"
    assert run(monkeypatch, ask) == 0
    said = f"'larch' ({len(strange)} rows) is no class of this head"
    assert said in capsys.readouterr().out
    x = strange[strange.species != "owl"].filter(like="z_")
    assert table["label"].to_list() == clf.predict_or_unknown(x).tolist()
    np.testing.assert_allclose(table["probability"], clf.predict_proba(x).max(axis=1))

    assert run(monkeypatch, "show h.safetensors") == 0
    assert "calibrated with 60 rows" in capsys.readouterr().out


def test_a_head_that_went_on_is_calibrated_anew(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, FIT) == 0
    assert run(monkeypatch, "fit week.parquet --label species --head h.safetensors") == 0
    assert "calibration out of date, since the head has changed" in capsys.readouterr().out
    assert run(monkeypatch, "show h.safetensors") == 0
    assert "calibration out of date" in capsys.readouterr().out
    ask = "predict h.safetensors known.csv --label species --out l.csv --force"
    assert run(monkeypatch, f"{ask} --unknown 0.05") == 1
    assert "has changed since it was calibrated" in capsys.readouterr().err
    assert not Path("l.csv").exists()
    with pytest.warns(CalibrationWarning, match="its probabilities may be too high or too low"):
        assert run(monkeypatch, ask) == 0

    birds(60, seed=2).to_csv("fresh.csv", index=False)
    before = Path("h.safetensors").read_bytes()
    again = "calibrate h.safetensors fresh.csv --label species"
    assert run(monkeypatch, f"{again} --out other.safetensors") == 0
    assert Path("h.safetensors").read_bytes() == before
    assert run(monkeypatch, again) == 0
    assert "calibrated with 60 rows" in capsys.readouterr().out
    assert Path("h.safetensors").read_bytes() == Path("other.safetensors").read_bytes()
    assert run(monkeypatch, f"{ask} --unknown 0.05") == 0


WRONG = {
    "share": ("fit birds.csv --label species --head slda --calibration 1.5 --out x", "below 1"),
    "no share": ("fit birds.csv --label species --head slda --calibration 0 --out x", "above 0"),
    "unknown": ("predict h.safetensors birds.csv --unknown 5 --out x.csv", "must be a share"),
    "too few": ("predict h.safetensors birds.csv --unknown 0.01 --out x.csv", "at least 99 calib"),
    "a class without rows": (
        "fit week.parquet --label species --head h.safetensors --calibration 0.2",
        "none of 'emu', 'ibis', 'kiwi'",
    ),
    "a class not learned": (
        "calibrate h.safetensors week.parquet --label species",
        "unknown label 'owl'",
    ),
    "no such rows": ("calibrate h.safetensors cifar10 --rows validation", "of 'validation'"),
    "one row of a class": (
        "fit one.csv --label species --head slda --calibration 0.1 --out x",
        "at least 2 rows of each class.*got 1 of 'kiwi'",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_and_changes_nothing(
    monkeypatch: Patch, capsys: Printed, wrong: str
) -> None:
    assert run(monkeypatch, FIT) == 0
    frame = birds()
    few = frame[frame.species != "owl"]
    first = few[few.species == "kiwi"].index[0]
    few[(few.species != "kiwi") | (few.index == first)].to_csv("one.csv", index=False)
    before = Path("h.safetensors").read_bytes()
    command, message = WRONG[wrong]
    capsys.readouterr()
    assert run(monkeypatch, command) == 1
    error = capsys.readouterr().err
    assert all(part in " ".join(error.split()) for part in message.split(".*")), error
    assert Path("h.safetensors").read_bytes() == before
    assert not Path("x").exists()
    assert not Path("x.csv").exists()


def test_a_classifier_holds_rows_out_and_says_when_it_has_changed() -> None:
    frame = birds()
    x, y = frame.filter(like="z_").to_numpy(), frame.species.to_numpy()
    clf = ll.HeadClassifier("mean", calibration=0.1, random_state=0).fit(x, y)
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [90] * 4
    assert clf.head_.calibration is not None
    assert clf.head_.calibration.rows == 40
    same = ll.HeadClassifier("mean", calibration=0.1, random_state=0).fit(x, y)
    np.testing.assert_array_equal(same.predict_proba(x), clf.predict_proba(x))
    clf.save("clf.safetensors")
    again = ll.HeadClassifier.load("clf.safetensors")
    np.testing.assert_array_equal(again.predict_proba(x), clf.predict_proba(x))
    np.testing.assert_array_equal(again.predict_or_unknown(x), clf.predict_or_unknown(x))
    assert again.get_params() == clf.get_params()
    clf.partial_fit(x[:1], y[:1])
    with pytest.raises(NotCalibratedError, match="has changed since"):
        clf.predict_or_unknown(x)
    with pytest.warns(CalibrationWarning, match="its probabilities may be too high or too low"):
        later = clf.predict_proba(x)
    np.testing.assert_allclose(later, again.predict_proba(x), atol=0.05)  # a row more, of 360
    clf.predict(x)
    clf.calibrate(x, y).predict_proba(x)


@pytest.mark.parametrize(
    ("labels", "unknown", "kind"),
    [(["a", "b"], "nobody", "U"), (["a", "b"], None, "O"), ([3, 7], -1, "i"), ([3, 7], "?", "O")],
)
def test_unknown_labels_are_of_the_kind_that_was_asked(
    labels: list[object], unknown: object, kind: str
) -> None:
    random = np.random.default_rng(0)
    y = np.array(labels)[np.arange(200) % 2]
    x = random.normal(size=(200, 2)) + 9 * (np.arange(200) % 2)[:, None]
    clf = ll.HeadClassifier("slda", calibration=0.2, random_state=0).fit(x, y)
    found = clf.predict_or_unknown([[0, 0], [9, 9], [99, -99]], unknown_label=unknown)
    assert found.tolist() == [*labels, unknown]
    assert found.dtype.kind == kind
    with pytest.raises(ValueError, match="must not be one of the classes"):
        clf.predict_or_unknown(x, unknown_label=labels[0])


def test_a_head_goes_to_onnx(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, FIT) == 0
    assert run(monkeypatch, "export h.safetensors h.onnx --unknown 0.05 --float64") == 0
    printed = capsys.readouterr().out
    assert "slda: 3 classes, float64, opset 18" in printed
    assert "probabilities are calibrated; unknown inputs get class -1" in printed
    assert f"wrote h.onnx: {Path('h.onnx').stat().st_size:,} bytes" in printed
    clf = ll.HeadClassifier.load("h.safetensors")
    frame = birds(40, seed=1).filter(like="z_").astype(np.float64)
    x = frame.to_numpy()
    session = onnxruntime.InferenceSession("h.onnx")
    label, probabilities, _ = session.run(None, {"z": x})
    said = session.get_modelmeta().custom_metadata_map
    names = np.array([*json.loads(said["class_names"]), None], dtype=object)
    assert names[label].tolist() == clf.predict_or_unknown(frame).tolist()
    np.testing.assert_allclose(probabilities, clf.predict_proba(frame), atol=1e-9)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export h.safetensors h.onnx --unknown 3", "below 1, got 3"),
        ("export h.safetensors h.onnx --unknown 0.001", "at least 999 calibration rows"),
        (
            "export h.safetensors h.csv --unknown 0.1",
            "--unknown and --float64 are for an .onnx file",
        ),
        (
            "export h.safetensors h.txt",
            "must end in .onnx, .csv or .parquet",
        ),
        ("export nothing.safetensors h.onnx", "nothing.safetensors"),
        ("export . h.onnx", "the file of a head, got the folder"),
        ("export birds.csv h.onnx", "birds.csv"),
        ("export h.safetensors birds.csv/h.onnx", "cannot write"),
        ("export h.safetensors /proc/h.onnx", "/proc/h.onnx"),
    ],
)
def test_what_cannot_go_to_onnx_is_said(
    monkeypatch: Patch, capsys: Printed, command: str, message: str
) -> None:
    assert run(monkeypatch, FIT) == 0
    before = sorted(Path().iterdir())
    assert run(monkeypatch, command) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(Path().iterdir()) == before
