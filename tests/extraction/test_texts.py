"""Texts to features, part by part; with a model that counts letters."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch

import lastlayer as ll
from lastlayer.errors import DataError, MissingPackageError, OptionError
from lastlayer.extraction import parts
from lastlayer.extraction.from_texts import extract_texts

TEXTS = [f"{'ab'[i % 2] * (1 + i // 2)}" for i in range(20)]
TABLE = {"text": TEXTS, "intent": ["a", "b"] * 10, "customer": [i // 5 for i in range(20)]}


class Letters:
    """Counts a and b; may fail after so many texts."""

    fingerprint = "letters"

    def __init__(self, until: int = 1000) -> None:
        self.left, self.seen = until, 0

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        self.left -= len(texts)
        if self.left < 0:
            raise KeyboardInterrupt
        self.seen += len(texts)
        return torch.tensor([[t.count("a"), t.count("b")] for t in texts], dtype=torch.float32)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pl.DataFrame(TABLE).write_csv(tmp_path / "intents.csv")
    return tmp_path / "intents.csv"


def extract(table: Path, model: Letters, **options: object) -> ll.Features:
    out = table.with_name("out.safetensors")
    return extract_texts(table, "text", "intent", model, out, **options)  # type: ignore[arg-type]


def test_every_text_gets_its_features_and_labels(table: Path) -> None:
    said: list[str] = []
    data = extract(table, Letters(), domains=["customer"], batch_size=3, say=said.append)
    assert repr(data) == "Features(16 train, 4 test, 2 features, labels: intent (2), customer (4))"
    for split in data.splits.values():
        assert torch.equal(split.z[:, 1] > 0, split.y == 1)
    assert said[0] == "text: 'text'; label: 'intent', also kept: customer"
    again = ll.load_features(table.with_name("out.safetensors"))
    assert again.fingerprint == data.fingerprint
    assert sorted(p.name for p in table.parent.iterdir()) == ["intents.csv", "out.safetensors"]


def test_an_interrupted_extraction_goes_on(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SIZE", 4)
    whole = extract(table, Letters(), batch_size=2)
    table.with_name("out.safetensors").unlink()
    with pytest.raises(KeyboardInterrupt):
        extract(table, Letters(until=11), batch_size=2)
    assert not table.with_name("out.safetensors").exists()
    with pytest.raises(OptionError, match="with another setting of dtype"):
        extract(table, Letters(), dtype="float32")
    pl.DataFrame(TABLE | {"text": TEXTS[::-1]}).write_csv(table)
    with pytest.raises(OptionError, match="with another setting of texts"):
        extract(table, Letters())
    pl.DataFrame(TABLE).write_csv(table)
    model, told = Letters(), []
    data = extract(table, model, batch_size=2, progress=lambda *done: told.append(done))
    assert model.seen == 12  # eight were done
    assert told[-1] == (20, 20)
    assert data.fingerprint == whole.fingerprint


def test_splits_of_texts(table: Path) -> None:
    words = ["train"] * 12 + ["test"] * 4 + ["val"] * 4
    pl.DataFrame(TABLE | {"split": words}).write_csv(table)
    data = extract(table, Letters())
    assert [len(split) for split in data.splits.values()] == [12, 4, 4]
    assert data.train.z[:, 0].tolist() == [t.count("a") for t in TEXTS[:12]]


def test_bad_texts(table: Path) -> None:
    pl.DataFrame(TABLE | {"text": [None, *TEXTS[1:]]}).write_csv(table)
    with pytest.raises(
        DataError, match="every row of 'text' must have a value, got 1 missing, the first in row"
    ):
        extract(table, Letters())
    pl.DataFrame(TABLE | {"text": range(20)}).write_csv(table)
    with pytest.raises(DataError, match="column 'text' must hold text, got int64"):
        extract(table, Letters())


def test_without_the_extra(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[text\]'"):
        extract_texts(table, "text", "intent", "st:any", table.with_name("o.safetensors"))
