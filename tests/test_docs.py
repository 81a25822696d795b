"""The docs keep their promises: examples run, links lead somewhere, a head's page is short."""

import re
from pathlib import Path

import pytest

from lastlayer.catalogue import HEADS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SELF_CONTAINED = [
    page
    for page in PAGES
    if page.parent.name == "heads" or page.stem in ("layers", "analysis", "replay", "advise")
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


def test_every_head_has_a_short_page() -> None:
    for name in HEADS:
        page = DOCS / "heads" / f"{name.removesuffix('_no_bias')}.md"
        assert len(page.read_text().splitlines()) <= 40, name
