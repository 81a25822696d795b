"""A page taken apart: its tables as rows of text, its charts as specs, its words."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """What a reader, and a screen reader, finds on a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.headings: list[int] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._table: list[list[str]] | None = None
        self._cell = self._script = self._quiet = False
        self._chart = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self._table = self.tables.setdefault(str(given["id"]).removeprefix("table-"), [])
        if tag == "tr" and self._table is not None:
            self._table.append([])
        if tag in ("td", "th") and self._table is not None:
            self._table[-1].append("")
            self._cell = True
        if tag == "div" and str(given.get("id", "")).startswith("figure-"):
            self._chart = str(given["id"]).removeprefix("figure-")
        self._script = tag == "script" and given.get("type") == "application/json"
        self._quiet = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False
        if tag == "table":
            self._table = None
        if tag in ("script", "style"):
            self._script = self._quiet = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.specs[self._chart] = json.loads(data)
        elif self._cell and self._table is not None:
            self._table[-1][-1] += data
        if not self._quiet:
            self.words += data

    @property
    def sections(self) -> list[str]:
        """Name the parts of the page."""
        return [str(given["id"]) for tag, given in self.tags if tag == "section"]

    def rows(self, name: str) -> list[dict[str, str]]:
        """Give the rows of a table by its headings."""
        head, *rows = self.tables[name]
        return [dict(zip(head, row, strict=True)) for row in rows]
