"""Heads as modules and as ONNX files: the same answers, and refusals where there is none."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from streams import H, blobs, every_exact_head, every_head, make_head, trained
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.errors import (
    ArgumentError,
    MissingPackageError,
    NotCalibratedError,
    NotLearnedError,
    OptionError,
    UnsupportedError,
    WriteError,
)
from lastlayer.heads import Head, load_head
from lastlayer.heads.onnx_file import OPSET
from unseen_head import MidrangeHead

Answer = tuple[Tensor, Tensor, Tensor]


def run(path: Path, z: Tensor) -> Answer:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    label, probabilities, novelty = session.run(None, {"z": z.numpy()})
    return torch.from_numpy(label), torch.from_numpy(probabilities), torch.from_numpy(novelty)


def assert_same(head: Head, z: Tensor, answer: Answer, unknown: float, rounding: float) -> None:
    expected = head.predict(z, unknown), head.probabilities(z), head.novelty(z)
    far = (expected[2] - head.limit(unknown)).abs() > rounding * expected[2].abs()
    assert torch.equal(answer[0][far], expected[0][far])
    for found, right in zip(answer[1:], expected[1:], strict=True):
        torch.testing.assert_close(found.double(), right, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@every_head
def test_module_and_file_answer_as_the_head(
    name: str, preset: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Whatever the number of inputs, of classes that were seen and of one that was not."""
    head = trained(name, preset, n_classes=5)
    head.calibrate(*blobs(seed=1))
    rounding = 1e-9 if dtype == torch.float64 and head(blobs()[0]).dtype == dtype else 2e-3
    head.save(tmp_path / "head.safetensors")
    load_head(tmp_path / "head.safetensors").export_onnx(tmp_path / "head.onnx", 0.1, dtype)
    module = head.as_module(unknown=0.1, dtype=dtype)
    for n in (1, 7, 60):
        z = (1.5 * blobs(seed=2)[0][:n]).to(dtype)
        assert_same(head, z, module(z), 0.1, rounding)
        assert_same(head, z, run(tmp_path / "head.onnx", z), 0.1, rounding)
    assert run(tmp_path / "head.onnx", z[:0])[1].shape == (0, 5)


@every_exact_head
def test_without_a_calibration_nothing_is_unknown(name: str, tmp_path: Path) -> None:
    head = trained(name, "exact")
    head.export_onnx(tmp_path / "head.onnx", dtype=torch.float64)
    z = 100 * blobs(seed=2)[0].double()
    label, probabilities, _ = run(tmp_path / "head.onnx", z)
    assert torch.equal(label, head.predict(z))
    torch.testing.assert_close(probabilities, head.probabilities(z), rtol=1e-4, atol=1e-4)


def test_the_file_says_what_a_service_must_know(tmp_path: Path) -> None:
    head = trained("slda", "exact")
    head.class_names = ["cat", "dog", "Möwe"]
    head.calibrate(*blobs(seed=1))
    head.export_onnx(tmp_path / "head.onnx", unknown=0.1)
    model = onnx.load(tmp_path / "head.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [opset.version for opset in model.opset_import] == [OPSET]
    said = {one.key: one.value for one in model.metadata_props}
    assert json.loads(said["class_names"]) == ["cat", "dog", "Möwe"]
    assert json.loads(said["temperature"]) == head.temperature
    assert json.loads(said["limit"]) == head.limit(0.1)
    assert json.loads(said["unknown"]) == 0.1
    assert json.loads(said["limits"]) == {"0.05": head.limit(0.05), "0.1": head.limit(0.1)}
    assert said["head"] == "slda"
    session = onnxruntime.InferenceSession(str(tmp_path / "head.onnx"))
    (z,) = session.get_inputs()
    assert (z.name, z.shape, z.type) == ("z", ["n", H], "tensor(float)")
    assert [one.name for one in session.get_outputs()] == ["label", "probabilities", "novelty"]


@pytest.mark.parametrize("name", ["mean", "slda", "ridge", "qda", "knn", "cosine", "random_slda"])
def test_a_network_with_a_head_exports_as_one(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images, y = torch.rand(60, 3, 6, 6), torch.arange(60) % 3
    images = images + y[:, None, None, None]
    with torch.no_grad():
        z = backbone(images)
    head = make_head(name, 8)
    head.observe(z[:40], y[:40])
    head.calibrate(z[40:], y[40:])
    network = nn.Sequential(backbone, head.as_module(unknown=0.1)).eval()
    with warnings.catch_warnings():  # of the exporter itself
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (images[:2],), str(tmp_path / "net.onnx"), dynamo=False, opset_version=18,
            input_names=["image"], output_names=["label", "probabilities", "novelty"],
            dynamic_axes={v: {0: "n"} for v in ("image", "label", "probabilities", "novelty")},
        )  # fmt: skip
        traced = torch.jit.trace(network, (images[:2],))
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    found = session.run(None, {"image": images.numpy()})
    for answer in ([torch.from_numpy(one) for one in found], traced(images), network(images)):
        assert torch.equal(answer[0], head.predict(z, 0.1))
        torch.testing.assert_close(answer[1].double(), head.probabilities(z), atol=2e-3, rtol=2e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the two older ways to record
@pytest.mark.parametrize("name", ["knn", "slda", "linear", "median"])
def test_a_head_that_is_traced_itself_refuses(name: str, tmp_path: Path) -> None:
    """It looks at its inputs, and a record of what it did with some is wrong for others."""
    head, z = trained(name, "exact"), blobs()[0]
    file = str(tmp_path / "x.onnx")
    for record in (
        lambda: torch.jit.trace(head, (z,)),
        lambda: torch.onnx.export(head, (z,), file, dynamo=False),
        lambda: torch.export.export(head, (z,), strict=False),
    ):
        with pytest.raises(UnsupportedError, match=r"cannot be traced.*as_module\(\)"):
            record()
    assert not list(tmp_path.iterdir())
    head(z)


def test_a_head_without_a_graph_refuses(tmp_path: Path) -> None:
    head = MidrangeHead(H)
    head.observe(*blobs())
    for ask in (head.as_module, lambda: head.export_onnx(tmp_path / "head.onnx")):
        with pytest.raises(UnsupportedError, match="'midrange' head cannot become a module"):
            ask()
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    z, y = blobs(seed=1)
    head = trained("mean", "exact")
    file = tmp_path / "head.onnx"
    file.write_text("before")
    with pytest.raises(NotLearnedError):
        make_head("mean", H).export_onnx(file)
    with pytest.raises(NotCalibratedError, match="is not calibrated"):
        head.export_onnx(file, unknown=0.1)
    head.calibrate(z, y)
    with pytest.raises(OptionError, match="above 0 and below 1"):
        head.export_onnx(file, unknown=2)
    with pytest.raises(OptionError, match="needs at least 999 calibration rows"):
        head.export_onnx(file, unknown=0.001)
    for wrong in (torch.float16, torch.int64, "float32", 32):
        with pytest.raises(ArgumentError, match=r"dtype must be torch.float32 or float64"):
            head.export_onnx(file, dtype=wrong)  # type: ignore[arg-type]
    for wrong in (tmp_path, "/proc/none/head.onnx", file / "inside.onnx"):
        with pytest.raises(WriteError, match=r"cannot write|expected a file"):
            head.export_onnx(wrong)
    with pytest.raises(ArgumentError, match="path must be a str"):
        head.export_onnx(3)  # type: ignore[arg-type]
    head.observe(z, y)
    with pytest.raises(NotCalibratedError, match="has changed since"):
        head.export_onnx(file)
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[onnx\]'"):
        trained("mean", "exact").export_onnx(tmp_path / "head.onnx")


def test_a_head_too_large_for_a_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastlayer.heads.onnx_file._LARGEST", 100)
    with pytest.raises(UnsupportedError, match="at most 2 GB, and this 'knn' head has"):
        trained("knn", "exact").export_onnx("never.onnx")
    assert not Path("never.onnx").exists()


@pytest.mark.parametrize("scale", [1e-20, 1e15])
@pytest.mark.parametrize("name", ["mean", "slda", "ridge", "qda", "knn", "cosine+single"])
def test_tiny_and_huge_features_stay_within_float32(
    name: str, scale: float, tmp_path: Path
) -> None:
    z, y = blobs()
    head = make_head(name, H)
    for _ in range(head.passes or 20):
        head.observe(z * scale, y)
    queries = blobs(seed=1)[0] * scale
    head.export_onnx(tmp_path / "head.onnx")
    label, probabilities, _ = run(tmp_path / "head.onnx", queries)
    assert torch.equal(label, head.predict(queries))
    assert probabilities.isfinite().all()


@pytest.mark.parametrize("name", ["random_slda", "random_ridge"])
def test_a_map_narrower_than_the_classes_measures_what_is_new(name: str, tmp_path: Path) -> None:
    head = ll.make_head(name, H, width=2)
    head.observe(*blobs())
    queries = 3 * blobs(seed=1)[0].double()
    head.export_onnx(tmp_path / "head.onnx", dtype=torch.float64)
    novelty = run(tmp_path / "head.onnx", queries)[2]
    torch.testing.assert_close(novelty, head.novelty(queries), rtol=1e-9, atol=1e-9)


def test_knn_with_rows_in_several_parts_and_equal_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lastlayer.heads.neighbours.knn._ROWS", 16)
    random = torch.Generator().manual_seed(0)
    z = torch.randint(5, (100, 2), generator=random).double()
    y = torch.arange(100) % 3
    head = ll.make_head("knn", 2)
    head.observe(z, y)
    queries = torch.cat([z, z + 0.25, z - 7.125])
    head.export_onnx(tmp_path / "head.onnx", dtype=torch.float64)
    _, probabilities, novelty = run(tmp_path / "head.onnx", queries)
    torch.testing.assert_close(probabilities, head.probabilities(queries), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(novelty, head.novelty(queries), rtol=1e-9, atol=1e-9)


def test_a_classifier_exports_with_its_scale_and_names(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = np.array(["owl", "ape"])[np.arange(200) % 2]
    x = random.normal(size=(200, 3)) + 50 * (np.arange(200) % 2)[:, None]
    clf = ll.HeadClassifier("linear", feature_scale=10.0, calibration=0.2, random_state=0).fit(x, y)
    clf.export_onnx(tmp_path / "head.onnx", unknown=0.1, dtype=torch.float64)
    label, probabilities, novelty = run(tmp_path / "head.onnx", torch.from_numpy(x))
    said = {p.key: p.value for p in onnx.load(tmp_path / "head.onnx").metadata_props}
    names = np.array([*json.loads(said["class_names"]), "?"], dtype=object)
    expected = clf.predict_or_unknown(x, 0.1, unknown_label="?")
    assert names[label.numpy()].tolist() == expected.tolist()
    in_order = [json.loads(said["class_names"]).index(name) for name in clf.classes_]
    np.testing.assert_allclose(probabilities.numpy()[:, in_order], clf.predict_proba(x), atol=1e-9)
    np.testing.assert_allclose(novelty, clf.novelty(x), atol=1e-9)


BUNDLED = ("cifar10", "cifar100")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mean", "slda", "ridge", "qda", "linear", "cosine+single"])
@pytest.mark.parametrize("features", BUNDLED)
def test_every_test_row_of_the_bundled_sets_gets_the_same_class(
    features: str, name: str, tmp_path: Path
) -> None:
    data = ll.load_features(features)
    head = ll.make_head(name, 64).double()
    some = slice(None, None, 4)
    for z, y in zip(data.train.z[some].split(256), data.train.y[some].split(256), strict=True):
        head.observe(z, y)
    z = data.test.z.double()
    logits = head(z)
    head.export_onnx(tmp_path / "exact.onnx", dtype=torch.float64)
    assert torch.equal(run(tmp_path / "exact.onnx", z)[0], logits.argmax(dim=1))
    head.export_onnx(tmp_path / "head.onnx")
    other = run(tmp_path / "head.onnx", z.float())[0] != logits.argmax(dim=1)
    first, second = logits.topk(2, dim=1).values.T
    gap = (first - second) / logits.abs().amax(dim=1)
    assert (gap[other] < 1e-5).all()
    assert int(other.sum()) <= 2
