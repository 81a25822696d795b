"""What make installs is held to hashes: all that constraints.txt pins, but for PyTorch."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return importlib.import_module("lock")


def test_every_pin_has_hashes(lock: ModuleType) -> None:
    text = (ROOT / "locked.txt").read_text()
    pins = list(lock.pins((ROOT / "constraints.txt").read_text().splitlines()))
    assert (
        re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M) == pins
    )
    assert "torch" not in dict(pins)
    assert text.startswith(lock.HEADER)


def test_which_files_are_wanted(lock: ModuleType) -> None:
    wanted = ("a-1-py3-none-any.whl", "a-1.tar.gz", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
              "a-1-cp39-abi3-macosx_11_0_arm64.whl", "a-1-py2.py3-none-any.whl")  # fmt: skip
    unwanted = ("a-1-cp39-cp39-win_amd64.whl", "a-1-pp311-pypy311_pp73-win_amd64.whl",
                "a-1-cp314-cp314t-macosx_11_0_arm64.whl", "a-1-cp312-cp312-win32.whl")  # fmt: skip
    assert all(map(lock.wanted, wanted))
    assert not any(map(lock.wanted, unwanted))
    files = [
        (name, digit * 64) for name, digit in zip((*wanted[:2], unwanted[0]), "abc", strict=True)
    ]
    expected = [f"    --hash=sha256:{digit * 64}" for digit in "ab"]
    assert lock.entry("a", "1", iter(files)) == " \\\n".join(["a==1", *expected])


def test_pages_of_links_are_read_too(lock: ModuleType) -> None:
    page = f'<a href="https://files/a/a-1-py3-none-any.whl#sha256={"b" * 64}" data-x="">a</a><br/>'
    expected = [{"filename": "a-1-py3-none-any.whl", "hashes": {"sha256": "b" * 64}}]
    assert lock.links(page) == expected


def test_what_makes_the_docs_has_hashes_too(lock: ModuleType) -> None:
    text = (ROOT / "locked-docs.txt").read_text()
    pins = list(lock.pins((ROOT / "constraints-docs.txt").read_text().splitlines()))
    assert (
        re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M) == pins
    )
    assert {"mkdocs-material", "mkdocstrings"} <= dict(pins).keys()
