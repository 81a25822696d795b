"""Work in threads of this process: what is set for its time is as before afterwards."""

import ctypes
from types import SimpleNamespace

import pytest

from lastlayer.shards.local import large_blocks_given_back


@pytest.mark.parametrize("has_it", [True, False])
def test_what_glibc_is_told_is_told_back(has_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *setting: told.append(setting))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library if has_it else object())
    with pytest.raises(ValueError, match="within"), large_blocks_given_back():
        raise ValueError("within")
    assert told == ([(-3, 4 << 20), (-3, 32 << 20), (-1, 64 << 20)] if has_it else [])
