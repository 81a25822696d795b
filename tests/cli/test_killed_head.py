"""A head's file is the old one or the new one, whenever fit or forget is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_killed_at_any_moment_the_file_is_old_or_new(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_head.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fits, forgettings = ([int(n) for n in line.split()] for line in done.stdout.splitlines())
    assert fits[0] > 0
    assert forgettings[0] > 0
