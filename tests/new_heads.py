"""Cards of heads that the program has never seen."""

from dataclasses import replace
from typing import Any

import pytest

from lastlayer.catalogue.head_cards import HEADS

NEW = tuple(f"unseen_{number}" for number in range(12))


def with_cards(monkeypatch: pytest.MonkeyPatch, *names: str, **about: Any) -> None:
    """Put cards at the end of the catalogue, without colour and marker unless they are given."""
    bare = replace(HEADS["slda"], colour=None, marker=None)
    for name in NEW:
        monkeypatch.delitem(HEADS, name, raising=False)
    for name in names:
        monkeypatch.setitem(HEADS, name, replace(bare, name=name, **about))
