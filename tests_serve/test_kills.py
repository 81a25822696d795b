"""Kills: whatever was acknowledged is there exactly once, and what was forgotten is in no file.

180 kills of a child with a live head, 60 for each of three kinds, and 20 of the command, while
eight clients learn, forget, predict and label. ``LASTLAYER_KILLS=1000`` makes 1,000 in all.
"""

import os
import random
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from killed_child import check
from load import CLIENTS, LABELS, WIDTH, Plan, Traces, forgotten
from tests import killing

import lastlayer as ll
from conftest import start, wait_for
from lastlayer.live import Client

ALL = int(os.environ.get("LASTLAYER_KILLS", "200"))
SCRIPT = Path(__file__).parent / "killed_child.py"


@pytest.mark.parametrize("head", ["knn", "slda", "random_ridge"])
def test_a_child_killed_again_and_again(head: str, tmp_path: Path) -> None:
    said = killing.run(SCRIPT, tmp_path, ALL * 3 // 10, head)
    print(said)
    acknowledged, erased = (int(said.split()[place]) for place in (3, 5))
    assert acknowledged > ALL
    assert erased > 0


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, WIDTH))
    gone = Traces()
    gone.add(rows[:20])
    gone.add(rows)
    kinds = [rows[7].tobytes()[8:24], rows[30].astype("<f4").tobytes()[3:19],
             repr(rows[31].tolist()).encode()[20:36]]  # fmt: skip
    for number, text in enumerate(kinds):
        file = tmp_path / f"{number}"
        file.write_bytes(b"x" * (1001 + number) + text[:-1])
        assert gone.found_in(tmp_path) == []
        file.write_bytes(b"x" * (1001 + number) + text + b"y")
        assert gone.found_in(tmp_path) == [f"{number} at {1001 + number}"]
        file.unlink()


def test_the_command_killed_again_and_again(tmp_path: Path) -> None:
    z = np.random.default_rng(9).normal(size=(1200, WIDTH))
    clf = ll.HeadClassifier("slda").fit(z, [LABELS[i % len(LABELS)] for i in range(len(z))])
    clf.save(tmp_path / "h.safetensors")
    options = [tmp_path / "h.safetensors", "--store", tmp_path / "live"]
    plans = [Plan(number, 7) for number in range(CLIENTS)]
    done = [0] * CLIENTS
    chance, gone = random.Random(0), Traces()
    for _ in range(max(ALL // 10, 1)):
        service = start(*options)
        threads = [threading.Thread(target=work, args=(service.url, plans[n], done, n, None))
                   for n in range(CLIENTS)]  # fmt: skip
        for thread in threads:
            thread.start()
        goal = sum(done) + chance.randint(0, 60)
        wait_for(lambda goal=goal: sum(done) >= goal)
        time.sleep(chance.uniform(0, 0.1))
        assert service.stop(signal.SIGKILL) == -signal.SIGKILL
        for thread in threads:
            thread.join()
        gone.add(forgotten([ask for n in range(CLIENTS) for ask in plans[n].first(done[n])]))
        assert not (found := gone.found_in(tmp_path / "live")), found[:5]
    service = start(*options)
    until = [n + 1 for n in done]
    for number in range(CLIENTS):
        work(service.url, plans[number], done, number, until[number])
    assert done == until
    assert service.stop() == 0
    asked = [ask for n in range(CLIENTS) for ask in plans[n].first(done[n])]
    assert sum(done) > ALL
    gone.add(forgotten(asked))
    assert not (found := gone.found_in(tmp_path / "live")), found[:5]
    check(tmp_path / "live" / "h", clf, asked)


def work(url: str, plan: Plan, done: list[int], number: int, until: int | None) -> None:
    """Ask what a client asks, until the service has gone or it has asked so much."""
    with closing(Client(url, patience=0)) as client, suppress(ll.errors.UnavailableError):
        while until is None or done[number] < until:
            ask = plan.at(done[number])
            if ask.kind in ("learn", "forget"):
                getattr(client, ask.kind)(ask.rows, ask.labels, request=ask.name)
            elif ask.kind == "predict":
                client.predict(ask.rows)
            else:
                with suppress(ll.errors.TakenError):  # it was labelled before the kill
                    client.predict(ask.rows, id=ask.name)
                client.label(ask.name, ask.labels[0])
            done[number] += 1
