"""The docs keep their promises: examples run, links lead somewhere, a head's page is short."""

import re
from pathlib import Path

import pytest

from lastlayer.catalogue import HEADS, HeadCard

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SELF_CONTAINED = [
    page
    for page in PAGES
    if (page.parent.name == "heads" and page.stem != "README")
    or page.stem in ("layers", "analysis", "replay", "advise", "use", "unknown")
]


@pytest.mark.parametrize("page", SELF_CONTAINED, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a page one after the other, each with what the ones before have made."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names = {"__name__": "__docs__"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_index_of_heads_is_that_of_the_cards() -> None:
    header = "| head | logit of class i | use it for | keeps | linear | merges | forgets |"
    rows = "\n".join([header, "|---" * 7 + "|", *map(_row, HEADS.values())])
    assert rows in (DOCS / "heads" / "README.md").read_text(), f"expected this table:\n{rows}"


def _row(card: HeadCard) -> str:
    can = card.abilities
    forgets = ["samples"] * can.forgets + ["classes"] * can.forgets_class
    cells = (
        f"[{card.name}]({_page(card.name).name})",
        f"`{card.formula}`",
        card.use,
        card.state,
        "yes" if can.linear else "no",
        "yes" if can.merges else "no",
        ", ".join(forgets) or "no",
    )
    return f"| {' | '.join(cells)} |"


def _page(name: str) -> Path:
    return DOCS / "heads" / f"{name.removesuffix('_no_bias')}.md"


def test_every_head_has_a_short_page() -> None:
    for name in HEADS:
        assert len(_page(name).read_text().splitlines()) <= 40, name
