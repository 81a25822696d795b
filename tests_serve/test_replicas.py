"""Two replicas with different halves, merged and reloaded, are one service that learned all."""

from pathlib import Path

import numpy as np
import pytest

import lastlayer as ll
from conftest import Service, made_up, running, save_head

Z, Y = made_up(60, 1)
NEW = ["elk" if n % 2 else "owl" for n in range(10)]
QUERIES, _ = made_up(50, 3)


def learn(service: Service, z: np.ndarray, y: list[str]) -> None:
    assert service.ask("/learn", {"rows": z.tolist(), "labels": y})[0] == 200


def fetch(service: Service, file: Path) -> str:
    status, body, headers = service.raw("/delta")
    assert status == 200
    file.write_bytes(body)
    return str(headers["x-delta"])


@pytest.mark.parametrize("head", ["slda", "random_ridge"])
def test_halves_are_a_whole(head: str, tmp_path: Path) -> None:
    base = tmp_path / "h.safetensors"
    options = {"width": 40} if head == "random_ridge" else {}
    clf = ll.HeadClassifier(head, options=options or None, random_state=0)
    clf.fit(*made_up(1200, 9)).save(base)
    flags = ["--fresh", "0", "--replica"]
    one_at = [base, "--store", tmp_path / "one", *flags]
    with running(*one_at) as one, running(base, "--store", tmp_path / "two", *flags) as two:
        learn(one, Z[:20], Y[:20])
        learn(one, Z[20:30], NEW)
        learn(two, Z[30:40], NEW[::-1])  # new classes in another order
        learn(two, Z[40:], Y[40:])
        first = fetch(one, tmp_path / "d1.safetensors")
        learn(one, QUERIES[:5], ["c0"] * 5)  # since
        assert fetch(one, tmp_path / "again.safetensors") == first
        same = [(tmp_path / f"{n}.safetensors").read_bytes() for n in ("d1", "again")]
        assert same[0] == same[1]
        fetch(two, tmp_path / "d2.safetensors")
        assert one.ask("/forget", {"rows": Z[:1].tolist(), "labels": Y[:1]})[0] == 409
        assert one.ask("/state")[0] == 409
        merged = ll.merge(base, tmp_path / "d1.safetensors", tmp_path / "d2.safetensors")
        with pytest.raises(ll.errors.MergeError, match="would count twice"):
            merged.merge(ll.HeadClassifier.load(tmp_path / "d1.safetensors"))
        merged.save(tmp_path / "merged.safetensors")
        sent = (tmp_path / "merged.safetensors").read_bytes()
        status, said = one.ask("/reload", sent, {"content-type": "application/octet-stream"})
        assert status == 200, said
        assert two.ask("/reload", sent, {"content-type": "application/octet-stream"})[0] == 200
        whole = ll.HeadClassifier.load(base)
        whole.partial_fit(np.concatenate([Z[:40], Z[40:]]), [*Y[:20], *NEW, *NEW[::-1], *Y[40:]])
        expected = whole.predict_proba(QUERIES).max(axis=1)
        found = two.ask("/predict", {"rows": QUERIES.tolist()})[1]
        assert found["labels"] == whole.predict(QUERIES).tolist()
        np.testing.assert_allclose(found["probabilities"], expected, rtol=1e-7)
        whole.partial_fit(QUERIES[:5], ["c0"] * 5)  # the first has learned these since
        check(one, whole)
        one.process.kill()
    with running(*one_at[1:]) as one:
        check(one, whole)
        assert one.ask("/reload", sent, {"content-type": "application/octet-stream"})[0] == 200
        check(one, whole)
        second = fetch(one, tmp_path / "d3.safetensors")
        assert second != first
        assert one.ask("/delta", {"acknowledge": second})[0] == 200
        assert one.ask("/delta")[0] == 404  # nothing since
        check(one, whole)


def check(service: Service, clf: ll.HeadClassifier) -> None:
    found = service.ask("/predict", {"rows": QUERIES.tolist()})[1]
    assert found["labels"] == clf.predict(QUERIES).tolist()
    expected = clf.predict_proba(QUERIES).max(axis=1)
    np.testing.assert_allclose(found["probabilities"], expected, rtol=1e-7)


def test_what_a_replica_refuses(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors", "cosine")
    with pytest.raises(AssertionError, match="needs a head that merges"):
        running(tmp_path / "h.safetensors", "--store", tmp_path / "live", "--replica").__enter__()
    save_head(tmp_path / "s.safetensors")
    with running(tmp_path / "s.safetensors", "--store", tmp_path / "s", "--replica") as service:
        save_head(tmp_path / "m.safetensors", "mean")
        other = (tmp_path / "m.safetensors").read_bytes()
        kind = {"content-type": "application/octet-stream"}
        assert service.ask("/reload", other, kind)[0] == 409
        assert service.ask("/reload", b"no head", kind)[0] == 422
        assert service.ask("/predict", {"rows": Z.tolist()})[0] == 200
