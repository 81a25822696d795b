"""What tests of the program share."""

from pathlib import Path

import pytest
from newcomer import write


@pytest.fixture
def newcomers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a newcomer's tables."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    return tmp_path
