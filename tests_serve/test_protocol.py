"""The plain protocol: what the curl lines of the docs give, and what is refused, and how."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import lastlayer as ll
from conftest import Service, made_up, running, save_head

Z, Y = made_up(40, 1)


def test_a_label_that_comes_later(service: Service) -> None:
    row = Z[:1].tolist()
    status, said = service.ask("/predict", {"rows": row, "id": "a17", "note": "photos/17.jpg"})
    assert status == 200
    assert said["waiting"]
    assert len(said["labels"]) == len(said["probabilities"]) == len(said["best"]) == 1
    status, waiting = service.ask("/review")
    assert (waiting["waiting"], waiting["inputs"][0]["note"]) == (1, "photos/17.jpg")
    status, receipt = service.ask("/learn", {"id": "a17", "label": "owl"})
    assert (status, receipt["rows"]) == (200, 1)
    assert service.ask("/learn", {"id": "a17", "label": "owl"}) == (200, receipt)
    assert service.ask("/learn", {"id": "a17", "label": "elk"})[0] == 409
    assert service.ask("/learn", {"id": "a18", "label": "elk"})[0] == 404
    status, said = service.ask("/predict", {"rows": row})
    assert said["through"] >= receipt["change"]
    assert said["labels"] == ["owl"]  # the mean of the only owl


def test_learn_and_forget_by_name(service: Service) -> None:
    ask = {"request": "r9", "rows": Z[3:5].tolist(), "labels": Y[3:5]}
    status, receipt = service.ask("/learn", ask)
    assert status == 200
    assert set(receipt) == {"change", "rows", "fresh_through"}
    assert service.ask("/birds/learn", ask) == (200, receipt)
    service.ask("/predict", {"rows": Z[:1].tolist()})  # --fresh 0: answers know of it
    before = service.ask("/status")[1]["rows"]
    status, gone = service.ask("/forget", {**ask, "request": "f3"})
    assert (status, gone["rows"]) == (200, 2)
    service.ask("/predict", {"rows": Z[:1].tolist()})
    assert service.ask("/status")[1]["rows"] == before - 2
    relabel = {"rows": Z[8:9].tolist(), "labels": [Y[8]], "to": ["c0"]}
    service.ask("/learn", {"rows": relabel["rows"], "labels": relabel["labels"]})
    assert service.ask("/relabel", relabel)[0] == 200


def test_rows_as_safetensors(service: Service) -> None:
    kind = {"content-type": "application/safetensors"}
    rows = Z[10:14].astype(np.float32)
    about = {"labels": json.dumps(Y[10:14]), "request": '"tensors"'}
    body = save({"rows": rows}, metadata=about)
    assert len(body) < len(json.dumps({"rows": Z[10:14].tolist()}))
    assert service.ask("/learn", body, kind)[0] == 200
    labels = service.ask("/predict", save({"rows": rows}), kind)[1]["labels"]
    assert labels == service.ask("/predict", {"rows": rows.astype(float).tolist()})[1]["labels"]
    assert service.ask("/predict", b"no tensors", kind)[0] == 400
    assert service.ask("/predict", save({"z": rows}), kind)[0] == 400


def test_it_is_asked_as_mlflow_and_kserve_ask(service: Service) -> None:
    labels = service.ask("/predict", {"rows": Z.tolist()})[1]["labels"]
    for path, name in (("/invocations", "inputs"), ("/v1/models/birds:predict", "instances")):
        status, said = service.ask(path, {name: Z.tolist()})
        assert (status, said["predictions"]) == (200, labels)
        assert said["through"] == service.ask("/status")[1]["through"]
    assert service.ask("/ping")[0] == 200


ROW = {"name": "rows", "shape": [1, 5], "datatype": "FP32", "data": [1.0] * 5}
REFUSED = [
    (400, "/invocations", {"instances": [[1.0] * 5], "inputs": [[1.0] * 5]}),
    (400, "/invocations", {"dataframe_split": {}}),
    (422, "/v1/models/birds:predict", {"instances": [[1.0] * 4]}),
    (400, "/learn", b"{"),
    (400, "/learn", b"[1]"),
    (400, "/learn", b'{"rows": [[NaN, 1, 1, 1, 1]], "labels": ["c0"]}'),
    (400, "/learn", b"[" * 100_000),
    (400, "/learn", {"rows": [[1.0] * 5]}),
    (400, "/learn", {"rows": [[1.0] * 5], "labels": "c0"}),
    (400, "/learn", {"rows": [[1.0] * 5], "labels": ["c0"], "lables": 1}),
    (422, "/learn", {"rows": [[1.0] * 4], "labels": ["c0"]}),
    (422, "/learn", {"rows": [[1.0] * 5, [1.0]], "labels": ["c0", "c0"]}),
    (422, "/learn", {"rows": [[1e300] * 5], "labels": ["c0"]}),
    (422, "/learn", {"rows": [["x"] * 5], "labels": ["c0"]}),
    (422, "/learn", {"rows": [[1.0] * 5], "labels": [{"a": 1}]}),
    (422, "/learn", {"rows": [[1.0] * 5], "labels": ["x" * 5000]}),
    (422, "/learn", {"rows": [[1.0] * 5], "labels": ["c0"], "request": ""}),
    (422, "/forget", {"rows": [[1.0] * 5], "labels": ["nobody"]}),
    (422, "/forget", {"rows": [[1e6] * 5] * 2, "labels": ["c0"] * 2}),
    (404, "/forget", {"id": "nobody"}),
    (404, "/nothing", {}),
    (404, "/other/learn", {}),
    (404, "/v2/models/other/infer", {}),
    (405, "/status", {}),
    (400, "/v2/models/birds/infer", {"inputs": [{**ROW, "parameters": "x"}]}),
    (400, "/v2/models/birds/infer", {"inputs": [ROW], "parameters": [1]}),
    (400, "/v2/models/birds/infer", {"inputs": [ROW], "outputs": [{"name": ["x"]}]}),
    (400, "/v2/models/birds/infer", {"inputs": [{**ROW, "datatype": ["FP32"]}]}),
    (400, "/v2/models/birds/infer", {"inputs": [{**ROW, "shape": [10**18, 5]}]}),
    (400, "/v2/models/birds/infer", {"inputs": [{**ROW, "data": ["x"] * 5}]}),
    (409, "/reload", {}),
]


@pytest.mark.parametrize(("status", "path", "body"), REFUSED)
def test_what_is_refused_is_said_in_a_sentence(
    service: Service, status: int, path: str, body: object
) -> None:
    change = service.ask("/status")[1]["change"]
    found, said = service.ask(path, body)
    assert found == status, said
    assert list(said) == ["error"]
    assert "Traceback" not in said["error"]
    assert "\n" not in said["error"]
    assert service.ask("/status")[1]["change"] == change


def test_a_refusal_says_what_to_do(service: Service) -> None:
    words = {"rows": [["x"] * 5]}
    assert service.ask("/predict", words)[1] == {"error": "rows must be numbers, got text"}
    assert service.ask("/predict") == (405, {"error": "use POST"})
    assert service.ask("/status", {}) == (405, {"error": "use GET"})
    assert service.ask("/nothing") == (404, {"error": "there is nothing here"})
    assert b'<noscript><p class="notice">This page needs JavaScript' in service.raw("/")[1]


def test_other_types_of_content_are_refused(service: Service) -> None:
    for headers in ({"content-type": "text/plain"}, {"content-encoding": "gzip"}):
        assert service.ask("/predict", {"rows": []}, headers)[0] == 415


def test_who_may_ask(service: Service) -> None:
    for path in ("/status", "/", "/metrics"):
        assert service.ask(path, headers={"host": "evil.example"})[0] == 400
    for path in ("/health", "/v2/health/ready"):  # a probe asks by address
        assert service.ask(path, headers={"host": "10.1.2.3:8000"})[0] == 200
    assert service.ask("/status", headers={"origin": "http://evil.example"})[0] == 400
    own = service.url.replace("127.0.0.1", "localhost")
    host = own.removeprefix("http://")
    assert service.ask("/status", headers={"host": host, "origin": own})[0] == 200


def test_metrics_and_state(service: Service, tmp_path: Path) -> None:
    status, text, headers = service.raw("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b'lastlayer_requests_total{status="422",verb="learn"}' in text
    for name in (b"store_bytes", b"disk_free_bytes", b"change", b"read_only"):
        assert b'lastlayer_%s{head="birds"}' % name in text
    assert b"owl" not in text
    file = tmp_path / "state.safetensors"
    file.write_bytes(service.raw("/state")[1])
    clf = ll.HeadClassifier.load(file)
    assert clf.head_.records["change"] == service.ask("/status")[1]["change"]
    answers = service.ask("/predict", {"rows": Z.tolist()})[1]
    assert clf.predict(Z).tolist() == answers["labels"]


def test_a_head_beside_another_is_told_at_the_start(tmp_path: Path) -> None:
    save_head(tmp_path / "a.safetensors")
    save_head(tmp_path / "b.safetensors", "mean")
    store = tmp_path / "live"
    with running(tmp_path / "a.safetensors", "--store", store) as service:
        said = "".join(service.said)
        assert '"I don\'t know" is off: every input gets a label; --unknown SHARE turns' in said
        assert "several" not in said
    with running(tmp_path / "b.safetensors", "--store", store, "--unknown", "0.05") as service:
        said = "".join(service.said)
        assert f"added to {store}, which held a: b\n" in said
        assert f"not served now, though in {store}: a; " in said
        assert "each under its name (/a/…, /b/…)" in said
        assert '"I don\'t know" is on: inputs stranger than all but 5 % of known ones' in said
    with running("--store", store) as service:
        assert "several heads are served: ask under /a/…, /b/…; /predict" in "".join(service.said)
        nothing = "there is nothing here: several heads are served: /a/…, /b/…"
        for path in ("/review", "/watch"):
            assert service.ask(path) == (404, {"error": nothing})


def test_several_heads_tokens_and_labels(tmp_path: Path) -> None:
    save_head(tmp_path / "a.safetensors")
    save_head(tmp_path / "b.safetensors", "mean")
    tokens = tmp_path / "tokens"
    tokens.write_text("read 0123456789abcdef\nchange fedcba9876543210\n")
    options = ["--store", tmp_path / "live", "--token-file", tokens, "--labels", "known"]
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    read = {"authorization": "Bearer 0123456789abcdef"}
    change = {"authorization": "Bearer fedcba9876543210"}
    learn = {"rows": Z[:1].tolist(), "labels": ["c0"]}
    with running(*files, *options) as service:
        assert service.ask("/health")[0] == 200
        assert service.ask("/v2/health/ready")[0] == 200
        for path in ("/a/status", "/metrics", "/live", "/v2/models/a"):
            assert service.ask(path)[0] == 401, path
        assert service.ask("/a/status", headers=read)[1]["head"] == "slda"
        assert service.ask("/b/status", headers=change)[1]["head"] == "mean"
        assert service.ask("/a/learn", learn, read)[0] == 401
        assert service.ask("/a/learn", learn, change)[0] == 200
        assert service.ask("/b/status", headers=read)[1]["change"] == 0
        assert service.ask("/learn", learn, change)[0] == 404
        new = {**learn, "labels": ["owl"]}
        assert service.ask("/a/learn", new, change)[0] == 422
        assert service.ask("/login", {"token": "no such token"})[0] == 401
        status, _, headers = service.raw("/login", {"token": "0123456789abcdef"})
        cookie = headers["set-cookie"]
        assert status == 200
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        in_page = {"cookie": cookie.partition(";")[0]}
        assert service.ask("/live", headers=in_page)[0] == 200
        assert service.ask("/a/learn", learn, in_page)[0] == 401
        assert service.stop() == 0
        assert not any("fedcba" in line or "c0" in line for line in service.said)
    with running(*options) as service:  # it goes on with what the store has
        assert service.ask("/a/status", headers=read)[1]["change"] == 1
