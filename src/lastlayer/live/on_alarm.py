"""Tell somebody of alarms: a command that reads them as JSON."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict

from lastlayer.errors import OptionError
from lastlayer.live.watch import Alarm

PATIENCE = 60  # seconds that a command may take


def run_command(command: str, alarms: Sequence[Alarm]) -> None:
    """Run a command of the shell, which reads the alarms as JSON: one list, from its input."""
    document = json.dumps([asdict(alarm) for alarm in alarms])
    try:
        done = subprocess.run(
            command, shell=True, input=document, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise OptionError(f"the command of --on-alarm took more than {PATIENCE} s") from None
    if done.returncode:
        raise OptionError(f"the command of --on-alarm ended with code {done.returncode}")
