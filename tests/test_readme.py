"""The README keeps its promises: short, and its first choice is the advised one."""

import re
from pathlib import Path

import pytest

import lastlayer as ll
from lastlayer.advice.choosing import choose
from lastlayer.advice.needs import Needs
from lastlayer.catalogue import HEADS
from lastlayer.evaluate.judge import judge
from lastlayer.evaluate.stream import lay_out

README = Path(__file__).parents[1] / "README.md"
DOCS = README.with_name("docs")


def blocks(kind: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 110


def test_its_make_targets_exist() -> None:
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"study", "test"} <= set(named)
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


FIRST = {name for name, card in HEADS.items() if "the first choice" in card.use}


def test_the_first_choice_is_called_so_in_the_docs() -> None:
    shown = re.findall(r"^Use (\w+): ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert shown
    assert set(shown) <= FIRST
    pages = {page.stem: page.read_text(encoding="utf-8") for page in DOCS.glob("heads/*.md")}
    called = {name for name, text in pages.items() if "the first choice" in text}
    assert called - {"README"} == FIRST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "scenario"),
    [("cifar10", "cifar10"), ("cifar100", "cifar100_lifelong"), ("cifar100", "cifar100_mix")],
)
def test_the_first_choice_is_what_is_advised(features: str, scenario: str) -> None:
    stream = lay_out(ll.load_features(features), scenario)
    judgement = judge(stream, [*FIRST, "slda", "qda", "mean"], curves=False)
    choice = choose(stream, judgement, Needs())
    assert choice.head in FIRST
    assert not FIRST.issuperset(judgement.verdicts)  # others were tried
