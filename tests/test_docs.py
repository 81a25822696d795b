"""The docs keep their promises: examples run, links lead somewhere, a head's page is short."""

import re
from pathlib import Path

import pytest
from tests.cli import newcomer

from lastlayer.catalogue.head_cards import HEADS, HeadCard
from lastlayer.catalogue.scenario_cards import KINDS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SELF_CONTAINED = [
    page
    for page in PAGES
    if (page.parent.name == "heads" and page.stem != "README")
    or page.stem in ("layers", "analysis", "replay", "advise", "use", "unknown", "watch")
]


@pytest.mark.parametrize(
    "page",
    [  # advise trains every head on all bundled rows
        pytest.param(p, marks=[pytest.mark.slow] if p.stem == "advise" else [])
        for p in SELF_CONTAINED
    ],
    ids=lambda page: page.stem,
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a page one after the other, each with what the ones before have made."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names = {"__name__": "__docs__"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)


RESULTS = sorted((DOCS.parent / "results").rglob("*.md"))
OF_ROOT = [DOCS.parent / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]


@pytest.mark.parametrize("page", [*PAGES, *RESULTS, *OF_ROOT], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


SOURCE = DOCS.parent / "src"


@pytest.mark.parametrize("page", [*PAGES, *OF_ROOT], ids=lambda page: page.stem)
def test_the_code_that_a_page_names_exists(page: Path) -> None:
    """Dotted names of modules, files, and packages that a page says hold the code of a head."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\blastlayer((?:\.[a-z_]\w*)+)", text):
        module, *rest = name[1:].split(".")
        path = SOURCE / "lastlayer" / module
        while path.is_dir() and rest and _is_code(path / rest[0]):
            path /= rest.pop(0)
        assert _is_code(path), name
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert not rest or re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")), name
    for file in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((top / file).is_file() for top in (DOCS.parent, SOURCE / "lastlayer")), file
    for line in re.findall(r"\*\*Code\*\*: (.*)", text):
        for folder in re.findall(r"`([\w/]+/)`", line):
            assert (SOURCE / "lastlayer" / folder).is_dir(), folder


def _is_code(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


BENCHMARKS = sorted((DOCS.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("program", BENCHMARKS, ids=lambda path: path.stem)
def test_a_page_cites_every_benchmark(program: Path) -> None:
    """What none of them cites is to go; the Makefile's targets and other results count as well."""
    cited = [*PAGES, *RESULTS, DOCS.parent / "Makefile"]
    name = re.compile(rf"benchmarks[./]{program.stem}\b")
    assert any(name.search(page.read_text(encoding="utf-8")) for page in cited)


def test_every_result_of_a_benchmark_names_its_command() -> None:
    results = sorted((DOCS.parent / "results" / "benchmarks").iterdir())
    index = (DOCS.parent / "results" / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for path in (path for path in results if path.suffix != ".csv" and path.stem != "README"):
        assert f"]({path.name})" in index
        commands = re.findall(
            r"^(?:    |\$ ).*\b(?:python|make|lastlayer)\b", path.read_text(), re.M
        )
        assert commands, path


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


def test_the_glossary_is_alphabetical_and_linked() -> None:
    words = re.findall(r"^- \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)
    letters = [re.sub(r"[^a-z]", "", word.lower()) for word in words]
    assert letters == sorted(letters)
    assert {"run", "plan", "head", "layer", "mask", "drift", "diverged", "resume"} <= set(words)
    assert "(glossary.md)" in (DOCS / "README.md").read_text()


@pytest.mark.slow
def test_compare_prints_what_its_page_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words; the numbers are of more heads and orders than a test should train."""
    (shown,) = re.findall(r"^```text\n(.*?)^```", (DOCS / "compare.md").read_text(), re.M | re.S)
    command, *expected = shown.splitlines()
    verb, features, *_ = command.removeprefix("$ lastlayer ").split()
    assert newcomer.run(monkeypatch, verb, features, "--heads", "mean,slda", "--orders", 2) == 0
    printed = capsys.readouterr().out.splitlines()
    assert _words(printed) == _words(expected)
    assert _accuracies(printed).items() <= _accuracies(expected).items()


def _accuracies(lines: list[str]) -> dict[str, str]:
    """Read the ranking; heads that learn in one pass have the same accuracy in every order."""
    ranked = (re.match(r"  \d\.  (\S+) +(.*)", line) for line in lines)
    return {found[1]: found[2] for found in ranked if found}


def _words(lines: list[str]) -> list[str]:
    """Drop the ranking, spaces and every number."""
    others = (line for line in lines if not re.match(r"  \d\.  ", line))
    return [" ".join(re.sub(r"\d[\d.]*", "0", line).split()) for line in others]


@pytest.mark.parametrize("page", ["compare", "scenarios"])
def test_every_kind_of_scenario_is_in_the_docs(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    for kind in KINDS.values():
        assert f"`{kind.form.split('COLUMN')[0]}" in text, kind.form
