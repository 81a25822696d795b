"""The docs as a site: every page has a place, every link leads somewhere, nothing is fetched."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import lastlayer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.fixture(name="site", scope="module")
def _site() -> ModuleType:
    """The hooks of mkdocs.yml; what they need of mkdocs is two names."""
    structure = ModuleType("mkdocs.structure.files")
    structure.File = structure.Files = object
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdocs", "mkdocs.structure"):
            patch.setitem(sys.modules, name, ModuleType(name))
        patch.setitem(sys.modules, structure.__name__, structure)
        patch.syspath_prepend(ROOT / ".ci")
        return importlib.import_module("docs_site")


def pages_of(site: ModuleType) -> list[str]:
    return [*(p for p in PAGES if p != "README.md"), *site.OF_ROOT.values(), *site.reference()]


def test_every_page_has_one_place(site: ModuleType) -> None:
    pages = pages_of(site)
    placed = [page for part in site.nav(pages) for mine in part.values() for page in mine]
    assert sorted(placed) == sorted(pages)
    assert not [part for part in site.nav(pages) if "More" in part]
    assert site.nav(pages)[0] == {"Start": ["index.md"]}


def test_decisions_stand_in_their_order(site: ModuleType) -> None:
    placed = [page for part in site.nav(pages_of(site)) for mine in part.values() for page in mine]
    numbers = [re.findall(r"\d+", page)[0] for page in placed if re.match(r"decisions/\d", page)]
    assert numbers == [str(n + 1) for n in range(len(numbers))]


class Here:
    """A page of the site, as far as its links need it."""

    def __init__(self, uri: str) -> None:
        self.file, self.src_uri = self, uri


def test_links_lead_within_the_site(site: ModuleType) -> None:
    """From every page, to pages and figures that are there; what is not on the site is no link."""
    figures = (path.relative_to(DOCS).as_posix() for path in (DOCS / "figures").iterdir())
    pages = {*pages_of(site), *figures}
    found = 0
    sources = {**{p: DOCS / p for p in PAGES if p != "README.md"},
               **{there: ROOT / here for here, there in site.OF_ROOT.items()}}  # fmt: skip
    for uri, path in sources.items():
        text = site.on_page_markdown(path.read_text(encoding="utf-8"), page=Here(uri))
        plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", plain):
            target = (DOCS / uri).parent.joinpath(link).resolve().relative_to(DOCS.resolve())
            assert target.as_posix() in pages, (uri, link)
            found += 1
    assert found > 100


@pytest.mark.parametrize(
    ("here", "written", "expected"),
    [
        ("advise.md", "[a](../results/regret/README.md)", "a (`results/regret/README.md`)"),
        ("heads/slda.md", "[a](../layers.md#masks)", "[a](../layers.md#masks)"),
        ("promises.md", "[a](../SECURITY.md)", "[a](security.md)"),
        ("index.md", "![a](docs/figures/beyond.svg)", "![a](figures/beyond.svg)"),
        ("index.md", "[a](docs/README.md)", "[a](index.md)"),
        ("index.md", "[a](https://pytorch.org)", "[a](https://pytorch.org)"),
        ("use.md", "```\n[a](../x)\n```", "```\n[a](../x)\n```"),
        ("use.md", "text:\n- a\n  b\n- c", "text:\n\n- a\n  b\n- c"),
        ("use.md", "- a\n  - b", "- a\n    - b"),
    ],
)
def test_how_a_page_becomes_one_of_the_site(
    site: ModuleType, here: str, written: str, expected: str
) -> None:
    assert site.on_page_markdown(written, page=Here(here)) == expected


def test_the_reference_has_every_public_name(site: ModuleType) -> None:
    text = "\n".join(site.reference().values())
    for name, home in lastlayer._HOME.items():
        assert f"::: {home}.{name}\n" in text
    assert "::: lastlayer.analysis.class_norms\n" in text
    assert "::: lastlayer.errors\n" in text


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No font, script or style of another machine is in what the site is made from."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "use_directory_urls: false" in settings
    assert "polyfills: [assets/iframe-worker.js]" in settings
    assert (DOCS / "assets" / "iframe-worker.js").is_file()
    assert "://" not in re.sub(r"#.*", "", settings)
