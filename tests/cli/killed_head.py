"""Kills fit and forget at random moments, in processes of their own; run by test_killed_head.py."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import newcomer
import torch

import lastlayer as ll
from lastlayer.cli import main
from lastlayer.estimator.fitting import fit

KILLS = int(os.environ.get("LASTLAYER_KILLS", "20"))
FIT = "fit week.safetensors --head head.safetensors"
FORGET = "forget head.safetensors customer.safetensors"


def start(command: str) -> int:
    """Run a command in a child, forked when everything is imported; give its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.argv = ["lastlayer", *command.split()]
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(command: str, head: Path, chance: random.Random) -> tuple[int, int]:
    """Kill a command again and again; give how often it left the old file, and the new one."""
    old = head.read_bytes()
    begin = time.monotonic()
    assert finish(start(command)) == 0
    # Not its bytes: what was forgotten is kept under a key that is drawn anew each time.
    whole, new = time.monotonic() - begin, ll.load_head(head).state_dict()
    assert old != head.read_bytes()
    left = [0, 0]
    while sum(left) < KILLS:
        head.write_bytes(old)
        child = start(command)
        time.sleep(chance.uniform(0, 1.2 * whole))
        os.kill(child, signal.SIGKILL)
        finish(child)
        changed = head.read_bytes() != old
        left[changed] += 1
        state = ll.load_head(head).state_dict()
        assert not changed or state.keys() == new.keys()
        assert not changed or all(torch.equal(state[name], new[name]) for name in new)
    head.write_bytes(old)
    return left[0], left[1]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    os.chdir(folder)
    # Features and no tables: the threads of polars do not survive a fork.
    frame = newcomer.birds()
    z, y = frame.filter(like="z_").to_numpy(), frame.species.to_numpy()
    old, test = frame.species != "owl", (z[:4], y[:4])
    ll.Features.from_arrays(z[old], y[old], test=test).save("birds.safetensors")
    ll.Features.from_arrays(z[~old][:20], y[~old][:20], test=test).save("week.safetensors")
    ll.Features.from_arrays(z[old][:10], y[old][:10], test=test).save("customer.safetensors")
    head = Path("head.safetensors")
    fit("birds.safetensors", "slda").save(head)
    chance = random.Random(0)
    for command in (FIT, FORGET):
        print(*kill(command, head, chance))  # noqa: T201  (read by the test)
