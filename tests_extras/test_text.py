"""Texts to features with sentence-transformers itself."""

import sys
from pathlib import Path

import pandas as pd
import pytest
import tiny_model
import torch
from sentence_transformers import SentenceTransformer

import lastlayer as ll
from lastlayer.cli import main
from lastlayer.errors import MissingFileError, OptionError
from lastlayer.extraction.backbones.sentence_models import load_sentence_model

pytestmark = pytest.mark.filterwarnings("default")  # those of the libraries are theirs
ASKED = {"send money": "transfer", "my card is lost": "lost", "how much balance": "balance"}
TEXTS = [f"{text} {word}" for word in ("please", "now", "help me", "a") for text in ASKED]
INTENTS = list(ASKED.values()) * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.make(tmp_path_factory.mktemp("tiny"))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["lastlayer", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_table_of_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path
) -> None:
    pd.DataFrame({"text": TEXTS, "intent": INTENTS, "split": ["train"] * 9 + ["test"] * 3}).to_csv(
        tmp_path / "intents.csv", index=False
    )
    out = tmp_path / "intents.safetensors"
    command = ["extract", "text", "--root", tmp_path / "intents.csv", "--column", "text"]
    command += ["--label", "intent", "--backbone", f"st:{model}", "--dtype", "float32"]
    assert run(monkeypatch, *command, "--out", out) == 0
    assert "text: 'text'; label: 'intent'" in capsys.readouterr().out
    data = ll.load_features(out)
    assert repr(data) == "Features(9 train, 3 test, 16 features, labels: intent (3))"
    expected = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    rows = torch.cat([data.train.z, data.test.z])
    torch.testing.assert_close(rows, torch.from_numpy(expected), rtol=1e-4, atol=1e-5)
    assert data.origin.backbone == "st:FOLDER"  # no path of this machine
    assert str(tmp_path) not in data.origin.made
    assert ll.fit(data, "mean").score(rows[:9].numpy(), INTENTS[:9]) > 0.8


def test_models_that_are_none(tmp_path: Path) -> None:
    for name in ("st:nobody/has-this", f"st:{tmp_path}"):
        with pytest.raises(MissingFileError, match="with sentence-transformers"):
            load_sentence_model(name, "cpu")
    with pytest.raises(OptionError, match="st:NAME_OR_FOLDER"):
        load_sentence_model("resnet18", "cpu")
