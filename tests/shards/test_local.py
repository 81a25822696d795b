"""Work in threads of this process: what glibc is told, and when it is left alone."""

import ctypes
from types import SimpleNamespace

import pytest

from lastlayer.evaluate.shard_tasks import large_blocks_given_back


@pytest.mark.parametrize(("has_it", "decided"), [(True, False), (False, False), (True, True)])
def test_what_glibc_is_told(has_it: bool, decided: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *setting: told.append(setting))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library if has_it else object())
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if decided:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    with pytest.raises(ValueError, match="within"), large_blocks_given_back():
        raise ValueError("within")
    assert told == (
        [(-3, 4 << 20), (-3, 32 << 20), (-1, 64 << 20)] if has_it and not decided else []
    )
