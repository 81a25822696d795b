"""The page of an advice: a first screen for who decides, and the rest below or folded away."""

import re
from pathlib import Path

import pytest

import lastlayer as ll
from lastlayer.advice.words import details_of
from lastlayer.catalogue.head_cards import HEADS, all_heads, in_plain_words, size_in_words
from read_page import Page
from small_streams import blobs

THEN = "lastlayer fit mine.safetensors --head x --out 'a b.safetensors'"


@pytest.fixture(scope="module")
def advice() -> ll.Advice:
    heads = ["linear", "linear+group", "cosine+single", "mean", "slda", "knn"]
    return ll.advise(blobs(n=600, noise=2.0), "incremental:2", heads=heads)


@pytest.fixture(scope="module")
def path(advice: ll.Advice, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page") / "advice.html"
    advice.page(place, THEN)
    return place


def test_the_first_screen_says_what_it_reaches_costs_and_what_next(
    advice: ll.Advice, path: Path
) -> None:
    said = " ".join(Page(path).words.split())
    first = said[: said.index("Made by lastlayer")]
    share = advice.choice.scores.accuracy(advice.head)
    assert f"Of 100 answers {100 * share.value:.0f} are right" in first
    assert f"{100 * share.low:.1f} to {100 * share.high:.1f} of 100" in first
    assert f"{100 * advice.choice.scores.of('linear'):.0f} with a linear layer" in first
    assert in_plain_words(advice.head) in first
    size = size_in_words(advice.choice.sizes[advice.head])
    assert f"{size} of memory" in first
    assert f"({size} of memory, " in said
    assert "an answer It keeps" in first
    assert f"What to run next {THEN}" in first
    drawn = path.read_text(encoding="utf-8")
    assert drawn.count('class="full"') == round(100 * share.value)
    assert drawn.count('class="full"') + drawn.count('class="rest"') == 100
    assert "What to run next" not in _without_a_command(advice, path)


def _without_a_command(advice: ll.Advice, path: Path) -> str:
    other = path.with_name("other.html")
    advice.page(other)
    return other.read_text(encoding="utf-8")


def test_what_only_specialists_read_is_folded(advice: ll.Advice, path: Path) -> None:
    details = details_of(advice)
    assert any("what would bring them back" in sentence for sentence in details)
    assert set(details) < set(advice.reasons)
    drawn = path.read_text(encoding="utf-8")
    open_ = re.sub(r"<details>.*?</details>", "", drawn, flags=re.DOTALL)
    for sentence in ("what would bring them back", "only the direction counts", "own: "):
        assert sentence in " ".join(details), sentence
        assert sentence in drawn
        assert sentence not in re.sub(r"<script.*?</script>", "", open_, flags=re.DOTALL)


def test_each_head_is_described_and_each_mark_has_its_name(advice: ll.Advice, path: Path) -> None:
    page = Page(path)
    described = dict(page.tables["plain"][1:])
    assert described.keys() == set(advice.table["head"])
    assert all(described.values())
    rows = page.specs["reached"]["datasets"]["rows"]
    assert {row["name"] for row in rows} == described.keys()
    assert [row["accuracy"] for row in rows] == sorted((r["accuracy"] for r in rows), reverse=True)


def test_every_card_says_in_plain_words_what_its_head_does() -> None:
    assert all(0 < len(card.plain) < 100 for card in HEADS.values())
    assert len({in_plain_words(name) for name in all_heads()}) == len(all_heads())
