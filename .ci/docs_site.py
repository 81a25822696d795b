"""What mkdocs.yml cannot say: the order of the pages, those of the root, and the reference.

The pages stay as GitHub shows them. Here their links are made to lead within the site: what is in
the repository and not on the site is named, and not linked.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lastlayer"
# Pages of the root → where they are on the site.
OF_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# The order is that of the life of a head; a page that is not named stands under "More".
NAV: dict[str, list[str]] = {
    "Start": ["index.md"],
    "Own data": ["features.md", "own-images.md", "scenarios.md", "advise.md", "compare.md"],
    "Use": ["use.md", "unknown.md", "scikit-learn.md", "layers.md"],
    "Serve": ["serve.md"],
    "Watch": ["watch.md"],
    "Labels": ["labels.md"],
    "Scale": ["scale.md"],
    "Heads": ["heads/*"],
    "Reference": [
        "promises.md",
        "performance.md",
        "analysis.md",
        "glossary.md",
        "reference.md",
        "reference/*",
    ],
    "The paper": [
        "study.md",
        "report.md",
        "gallery.md",
        "reproduction.md",
        "replay.md",
        "data/*",
    ],
    "Decisions": ["decisions/*"],
    "The project": ["changelog.md", "contributing.md", "security.md"],
}
FIRST = "heads/README.md", "decisions/README.md"
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]*)(?P<anchor>#[^)\s]*)?\)")
ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root and the reference; the index of docs/ is the site's own menu."""
    files.remove(files.src_uris["README.md"])
    made = {there: (ROOT / here).read_text(encoding="utf-8") for here, there in OF_ROOT.items()}
    for there, text in (made | reference()).items():
        files.append(File.generated(config, there, content=text))
    config.nav = nav([file.src_uri for file in files.documentation_pages()])
    return files


def nav(pages: list[str]) -> list[dict[str, list[str]]]:
    """Put pages in the order of NAV; those in none of its places come last."""
    left = sorted(pages, key=_place)
    found: list[dict[str, list[str]]] = []
    for title, wanted in NAV.items():
        mine = [page for want in wanted for page in left if _is(page, want)]
        left = [page for page in left if page not in mine]
        found.append({title: mine})
    return [part for part in [*found, {"More": left}] if any(part.values())]


def _is(page: str, want: str) -> bool:
    return page.startswith(want[:-1]) if want.endswith("*") else page == want


def _place(page: str) -> tuple[bool, list[int], str]:
    """Sort an index before its pages, and decisions by their numbers."""
    return page not in FIRST, [int(n) for n in re.findall(r"(?<=/)\d+", page)], page


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make a page one of the site: links that lead within it, and lists as GitHub reads them."""
    here = page.file.src_uri
    of_root = {there: name for name, there in OF_ROOT.items()}
    source = of_root.get(here, f"docs/{here}")
    return _outside_code(markdown, lambda text: _lists(LINK.sub(_within(here, source), text)))


def _within(here: str, source: str) -> Any:
    """Return how a link of a page is written on the site."""

    def write(link: re.Match[str]) -> str:
        path, anchor = link["path"], link["anchor"] or ""
        if not path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target == "docs/README.md":
            target = "README.md"
        if target in OF_ROOT:
            on_site = OF_ROOT[target]
        elif target.startswith("docs/"):
            on_site = target.removeprefix("docs/")
        else:  # in the repository, and not on the site
            return f"{link['text']} (`{target}`)"
        to = posixpath.relpath(on_site, posixpath.dirname(here) or ".")
        return f"{link['image']}[{link['text']}]({to}{anchor})"

    return write


def _lists(text: str) -> str:
    """Part a list from the paragraph before it, as Python's Markdown asks, and widen indents."""
    lines: list[str] = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        starts = ITEM.match(line) and before.strip() and not ITEM.match(before)
        if starts and not before.startswith((" ", "|", "#")):
            lines.append("")
        lines.append(re.sub(r"^(?:  )+(?=[-*] )", lambda found: found[0] * 2, line))
    return "\n".join(lines)


def _outside_code(markdown: str, change: Any) -> str:
    """Change a text, and leave its blocks of code alone."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def reference() -> dict[str, str]:
    """Write the pages that mkdocstrings fills from docstrings: by name, then by package."""
    homes = _assigned(SOURCE / "__init__.py", "_HOME")
    packages = _assigned(SOURCE / "__init__.py", "_PACKAGES")
    first = ["# Python API", "", "```python", "import lastlayer as ll", "```", "",
             "What most people need has a name of its own, `ll.NAME`; the rest is in the packages "
             "beside this page.", ""]  # fmt: skip
    first += [f"::: {home}.{name}" for name, home in homes.items()]
    pages = {"reference.md": "\n".join([*first, ""])}
    for package in packages:
        path = SOURCE / package / "__init__.py"
        if not path.is_file():  # a module: all that it has
            path, names = SOURCE / f"{package}.py", [""]
        else:
            names = [name for name in _assigned(path, "__all__") if name not in homes]
        mine = [f"::: lastlayer.{package}{'.' * bool(name)}{name}" for name in names]
        if mine:
            text = [f"# ll.{package}", "", _docstring(path), "", *mine, ""]
            pages[f"reference/{package}.md"] = "\n".join(text)
    return pages


def _assigned(path: Path, name: str) -> Any:
    """Read a plain value from a module without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return ()


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
