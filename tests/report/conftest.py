"""A report with every section, made once for all tests that read it."""

from pathlib import Path

import pytest
from made_up import PAPER, write_study

from lastlayer.report import write


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_study(tmp_path_factory.mktemp("paper"), PAPER)
    write(folder)
    return folder
