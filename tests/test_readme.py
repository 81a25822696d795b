"""The README keeps its promises: short, and its first choice is the advised one."""

import re
from pathlib import Path

import pytest
from tests.cli import newcomer

import lastlayer as ll
from lastlayer.advice.choosing import choose
from lastlayer.advice.needs import Needs
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.evaluate.judge import judge
from lastlayer.evaluate.stream import lay_out

README = Path(__file__).parents[1] / "README.md"
DOCS = README.with_name("docs")


def blocks(kind: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_its_make_targets_exist() -> None:
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"study", "test"} <= set(named)
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def shown() -> list[tuple[list[str], list[str]]]:
    """Return the commands of each block that is followed by what they print, and those lines."""
    text = README.read_text(encoding="utf-8")
    block = r"\n((?:(?!```).*\n)+)```$"
    pairs = re.findall(rf"^```sh{block}\n^```text{block}", text, flags=re.MULTILINE)
    plain = [re.sub(r" *#.*", "", lines) for lines, _ in pairs]
    typed = [[line.split(maxsplit=1)[1] for line in lines.splitlines()] for lines in plain]
    return [(commands, said.splitlines()) for commands, (_, said) in zip(typed, pairs, strict=True)]


def numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", line)]


@pytest.mark.slow
def test_the_life_of_a_head_is_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words; numbers may differ a little on another CPU."""
    monkeypatch.chdir(tmp_path)
    blocks_shown = shown()
    assert {commands[0].split()[0] for commands, _ in blocks_shown} == {
        "advise", "fit", "watch", "audit"
    }  # fmt: skip
    for commands, said in blocks_shown:
        capsys.readouterr()
        for command in commands:
            assert newcomer.run(monkeypatch, command) == 0, command
        printed = " ".join(capsys.readouterr().out.split())
        for line in said:
            words = r"\s".join(re.escape(word) for word in line.removesuffix("; …").split())
            pattern = re.sub(r"\d(?:[\d,]|\\\.)*", r"([\\d,.]+)", words)
            found = re.search(pattern, printed)
            assert found, (line, printed)
            assert numbers(found[0]) == pytest.approx(numbers(line), rel=0.02, abs=0.5), line


FIRST = {name for name, card in HEADS.items() if "the first choice" in card.use}


def test_the_first_choice_is_called_so_in_the_docs() -> None:
    shown = re.findall(
        r"^Use (\w+)(?:@\d+)?: ", README.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
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
