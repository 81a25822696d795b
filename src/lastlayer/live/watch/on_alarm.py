"""Tell somebody of alarms: a command that reads them as JSON, or an address they are sent to."""

import json
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPException

from lastlayer.errors import OptionError
from lastlayer.live.watch.watch import Alarm

PATIENCE = 60  # seconds that a command, or an answer, may take


def tell(target: str, alarms: Sequence[Alarm], head: str | None = None) -> None:
    """Give alarms as JSON, one list, to a command's input, or to an http(s) address by POST.

    They name the head where there may be several.
    """
    about = {} if head is None else {"head": head}
    document = json.dumps([about | asdict(alarm) for alarm in alarms])
    if target.startswith(("http://", "https://")):
        _send(target, document)
    else:
        _run(target, document)


def _run(command: str, document: str) -> None:
    try:
        done = subprocess.run(
            command, shell=True, input=document, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise OptionError(f"the command of --on-alarm took more than {PATIENCE} s") from None
    if done.returncode:
        raise OptionError(f"the command of --on-alarm ended with code {done.returncode}")


def _send(address: str, document: str) -> None:
    headers = {"content-type": "application/json"}
    try:
        request = urllib.request.Request(address, document.encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE):
            pass
    except (OSError, ValueError, HTTPException) as error:
        raise OptionError(f"the address of --on-alarm could not be told: {error}") from None
