"""A report with every section, made once for all tests that read it."""

from pathlib import Path

import pytest

from lastlayer.report import write
from made_up import PAPER, write_study
from undrawn import leave_out_the_renderer


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the paper's report; in the quick run nobody looks at its figures, so they are none."""
    folder = write_study(tmp_path_factory.mktemp("paper"), PAPER)
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not slow":
            leave_out_the_renderer(patch)
        write(folder)
    return folder
