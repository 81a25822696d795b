"""What made features: kept with them and with a head; those of another maker are refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli import newcomer

import lastlayer as ll
from lastlayer.data.features import Origin
from lastlayer.data.from_tables import import_features
from lastlayer.errors import DataError, LabelError, MergeError, OtherFeaturesWarning
from lastlayer.estimator import fitting
from lastlayer.heads.first_rows import TO_BEGIN

ONE = Origin(backbone="resnet", weights="7becafce00", normalisation="trained")
SAME = [Origin(), Origin(weights="7becafce00"), Origin("other data", "net", "7becafce00")]
MANY = 2 * TO_BEGIN  # half of them to learn, as many as a head looks after
OTHERS = [Origin(weights="0"), replace(ONE, normalisation="authors"), Origin(backbone="vit")]


def features(origin: Origin, seed: int = 0, mixed: bool = False, n: int = 200) -> ll.Features:
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    z = random.normal(size=(n, 10)) * 2.0 ** -np.arange(10) + y[:, None]
    data = ll.Features.from_arrays(z[:, ::-1].copy() if mixed else z, y, test=0.5)
    return replace(data, origin=origin)


def verbs(accept: bool) -> dict[str, Callable[[ll.HeadClassifier, ll.Features], object]]:
    how = {"accept_features": accept}
    return {
        "fit further": lambda clf, data: ll.fit(data, clf, **how),  # type: ignore[arg-type]
        "predict": lambda clf, data: fitting.predict(clf, data, **how),
        "calibrate": lambda clf, data: fitting.calibrate(clf, data, rows="test", **how),
        "forget": lambda clf, data: fitting.forget(clf, data, **how),
        "merge": lambda clf, data: ll.merge(clf, ll.fit(data), **how),
        "next": lambda clf, data: ll.next_rows(clf, data, 5, **how),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("verb", verbs(False))
def test_features_of_another_maker_are_refused_unless_accepted(verb: str) -> None:
    clf = ll.fit(features(ONE))
    assert clf.made_by_ == features(ONE).made_by
    for origin in OTHERS:
        before = clf.predict_proba(features(ONE).test.z.numpy())
        with pytest.raises(
            (DataError, MergeError), match=r"were made by .*, and those .* resnet, w"
        ):
            verbs(False)[verb](clf, features(origin))
        assert np.array_equal(clf.predict_proba(features(ONE).test.z.numpy()), before)
    verbs(True)[verb](clf, features(OTHERS[0]))
    assert clf.made_by_ == features(ONE).made_by


@pytest.mark.parametrize("origin", SAME)
def test_the_same_maker_and_an_unknown_one_are_taken(origin: Origin) -> None:
    for verb in verbs(False).values():
        verb(ll.fit(features(ONE)), features(origin))
        verb(ll.fit(features(origin)), features(ONE))


def test_a_maker_is_known_once_any_features_tell_it(tmp_path: Path) -> None:
    clf = ll.fit(features(Origin()))
    assert not hasattr(clf, "made_by_")
    ll.fit(features(ONE), clf).save(tmp_path / "h.safetensors")
    loaded = ll.HeadClassifier.load(tmp_path / "h.safetensors")
    assert loaded.made_by_ == features(ONE).made_by
    assert ll.merge(ll.fit(features(Origin())), loaded).made_by_ == features(ONE).made_by
    loaded.fit(features(ONE).train.z.numpy(), features(ONE).train.y.numpy())
    assert not hasattr(loaded, "made_by_")  # arrays do not say


def test_shards_of_several_makers_are_refused_unless_accepted(tmp_path: Path) -> None:
    for place, origin in enumerate((ONE, Origin(), OTHERS[0])):
        features(origin, place).save(tmp_path / f"{place}.safetensors")
    with pytest.raises(DataError, match=r"2\.safetensors were made by weights 0, others by resnet"):
        ll.fit(tmp_path)
    assert ll.fit(tmp_path, broken="skip").head_.class_counts.tolist() == [100, 100]  # type: ignore[union-attr]
    assert ll.fit(tmp_path, accept_features=True).head_.class_counts.sum() == 300  # type: ignore[union-attr]
    clf = ll.fit([tmp_path / "0.safetensors"])
    assert clf.made_by_ == features(ONE).made_by
    with pytest.raises(DataError, match="were made by weights 0"):
        ll.fit([tmp_path / "2.safetensors"], clf)


def test_rows_that_seem_to_be_others_are_warned_of_once(tmp_path: Path) -> None:
    clf, mixed = ll.fit(features(Origin(), n=MANY)), features(Origin(), 1, mixed=True, n=MANY)
    for verb in ("predict", "fit further"):
        with pytest.warns(OtherFeaturesWarning, match="the first rows .* of the same model"):
            verbs(False)[verb](clf, mixed)
        verbs(False)[verb](clf, mixed)
    again = ll.fit(features(Origin(), n=MANY))
    verbs(True)["predict"](again, mixed)
    with pytest.warns(OtherFeaturesWarning):
        again.predict(mixed.test.z.numpy())
    mixed.save(tmp_path / "a.safetensors")
    with pytest.warns(OtherFeaturesWarning, match="to learn further"):
        ll.fit([tmp_path / "a.safetensors"], ll.fit(features(Origin(), n=MANY)))


def test_from_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    newcomer.birds().to_csv("b.csv", index=False)
    for name in ("vit", "resnet"):
        word = f"--embedding z_* --label species --made-by {name} --out {name}.safetensors"
        assert newcomer.run(monkeypatch, f"import b.csv {word}") == 0
    assert ll.load_features("vit.safetensors").made_by == {"backbone": "vit"}
    assert "--made-by vit" in ll.load_features("vit.safetensors").origin.made
    assert newcomer.run(monkeypatch, "fit vit.safetensors --head slda --out h.safetensors") == 0
    assert newcomer.run(monkeypatch, "show h.safetensors") == 0
    assert "made by: vit\n" in capsys.readouterr().out
    ask = "predict h.safetensors resnet.safetensors --out a.csv"
    assert newcomer.run(monkeypatch, ask) == 1
    assert (
        "were made by resnet, and those that the head has learned by vit" in capsys.readouterr().err
    )
    assert newcomer.run(monkeypatch, f"{ask} --accept-features") == 0
    for asked in (
        "calibrate h.safetensors resnet.safetensors --rows all",
        "watch h.safetensors resnet.safetensors",
        "next h.safetensors resnet.safetensors --count 3 --out n.csv",
        "fit resnet.safetensors --head h.safetensors",
        "forget h.safetensors resnet.safetensors",
    ):
        assert newcomer.run(monkeypatch, asked) == 1
        assert "were made by resnet" in " ".join(capsys.readouterr().err.split())
        assert newcomer.run(monkeypatch, f"{asked} --accept-features") == 0
    clf = ll.HeadClassifier.load("h.safetensors")
    assert clf.origin_[1].endswith(", accepted though made by resnet")
    assert (
        newcomer.run(monkeypatch, "fit b.csv --embedding z_* --label species --head mean --out m")
        == 0
    )
    capsys.readouterr()
    assert newcomer.run(monkeypatch, "show m") == 0
    assert "made by: unknown (import --made-by says)" in capsys.readouterr().out


def test_a_table_does_not_say_and_is_taken(tmp_path: Path) -> None:
    frame = newcomer.birds()
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert ll.Features.from_frame(frame, "z_*", "species", test=0.2).made_by == {}
    assert (
        ll.Features.from_frame(frame, "z_*", "species", test=0.2, made_by="vit").made_by["backbone"]
        == "vit"
    )
    assert ll.Features.from_arrays([[0.0], [1.0]] * 4, [0, 1] * 4, made_by="vit").made_by
    clf = ll.fit(import_features(tmp_path / "b.csv", "z_*", "species", made_by="vit"))
    fitting.predict(clf, tmp_path / "b.csv", label="species")


def test_numbers_are_no_new_classes_of_a_head_that_has_learned_text(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    z, owls, numbers = random.normal(size=(60, 4)), np.array(["owl", "emu"] * 30), [3, 4] * 30
    clf = ll.fit(ll.Features.from_arrays(z, owls))
    ll.Features.from_arrays(z, numbers).save(tmp_path / "a.safetensors")
    for source in (tmp_path / "a.safetensors", [tmp_path / "a.safetensors"]):
        with pytest.raises(
            LabelError, match=r"must be text, .* \(emu, owl\), got only numbers: 3, 4"
        ):
            ll.fit(source, clf)
    assert sorted(clf.classes_) == ["emu", "owl"]
    mixed = ll.fit(ll.Features.from_arrays(z, ["3", "owl"] * 30))
    assert sorted(ll.fit(tmp_path / "a.safetensors", mixed).classes_) == ["3", "4", "owl"]
