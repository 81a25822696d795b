"""Kills a live head again and again under the load of eight clients, then counts its rows.

usage: killed_child.py FOLDER KILLS HEAD
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from load import CLIENTS, LABELS, WIDTH, Ask, Plan, Traces, forgotten, learned
from tests.killing import finish, fork

import lastlayer as ll
from lastlayer.live import LiveHead

torch.set_num_threads(1)
COUNT = 1_000_000  # asks of a client: more than it ever comes to


def serve(store: Path, plans: list[Plan], done: list[int], out: int, until: list[int]) -> None:
    """Work through the plans from where each client is, and write what was acknowledged."""
    with LiveHead(None, store, fresh=0.05) as live:

        def client(number: int) -> None:
            for place in range(done[number], until[number]):
                ask = plans[number].at(place)
                if ask.kind == "learn":
                    live.learn(ask.rows, ask.labels, request=ask.name)
                elif ask.kind == "forget":
                    live.forget(ask.rows, ask.labels, request=ask.name)
                else:
                    answer = live.predict(ask.rows)
                    assert answer.through <= live.change
                    if ask.kind == "label":
                        wait_and_label(live, ask)
                os.write(out, b"%d %d\n" % (number, place + 1))

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def wait_and_label(live: LiveHead, ask: Ask) -> None:
    with suppress(ll.errors.TakenError):  # it was labelled before the kill
        live.predict(ask.rows, id=ask.name)
    live.label(ask.name, ask.labels[0])


def begin(store: Path, head: str) -> ll.HeadClassifier:
    start = np.random.default_rng(9).normal(size=(1200, WIDTH))
    labels = [LABELS[i % len(LABELS)] for i in range(len(start))]
    options = {"width": 40} if head.startswith("random_") else None
    clf = ll.HeadClassifier(head, options=options, random_state=0).fit(start, labels)
    LiveHead(clf, store).close()
    return clf


def check(store: Path, clf: ll.HeadClassifier, asked: list[Ask]) -> None:
    """Compare the head with one that learned offline what was acknowledged, and no more."""
    found = ll.HeadClassifier.load(store / "head.safetensors")
    left = learned(asked)
    expected = Counter({label: n for (_, label), n in left.items()})
    rows = [np.frombuffer(row) for (row, _), n in left.items() for _ in range(n)]
    labels = [label for (_, label), n in left.items() for _ in range(n)]
    assert sum(expected.values()) <= len(rows)
    clf.partial_fit(np.array(rows), labels)
    assert found.classes_.tolist() == clf.classes_.tolist()
    assert found.head_.class_counts.tolist() == clf.head_.class_counts.tolist()
    if found.head_.abilities.keeps_samples:
        assert kept(found) == kept(clf)
    queries = np.random.default_rng(5).normal(size=(50, WIDTH))
    ours, theirs = (c.decision_function(queries) for c in (found, clf))
    assert np.abs(ours - theirs).max() <= 1e-9 * max(1.0, np.abs(theirs).max())


def kept(clf: ll.HeadClassifier) -> list[tuple[bytes, int]]:
    memory = clf.head_.memory
    return sorted(
        zip((z.numpy().tobytes() for z in memory.z.double()), memory.y.tolist(), strict=True)
    )


def main(folder: Path, kills: int, head: str) -> None:
    store, chance = folder / "store", random.Random(f"{head} {kills}")
    clf = begin(store, head)
    plans = [Plan(n, 7) for n in range(CLIENTS)]
    done = [0] * CLIENTS
    forever = [COUNT] * CLIENTS
    killed, gone = 0, Traces()
    while killed < kills:
        back, out = os.pipe()
        child = fork(partial(loudly, serve, store, plans, done, out, forever))
        os.close(out)
        with os.fdopen(back, "rb") as lines:
            # Most kills come after so many acknowledgements, however slow the machine is, and
            # some at any moment, such as while it starts.
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0.01, 0.5))
            else:
                heed(islice(lines, chance.randint(1, 30)), done)
            os.kill(child, signal.SIGKILL)
            assert finish(child) == -signal.SIGKILL, "the child ended on its own"
            heed(lines, done)
        killed += 1
        gone.add(forgotten([ask for n in range(CLIENTS) for ask in plans[n].first(done[n])]))
        assert not (found := gone.found_in(store)), found[:5]
    # What was under way at the last kill is asked again, as a client would.
    until = [n + 1 for n in done]
    back, out = os.pipe()
    child = fork(partial(loudly, serve, store, plans, done, out, until))
    os.close(out)
    with os.fdopen(back, "rb") as lines:
        heed(lines, done)
    assert finish(child) == 0
    assert done == until
    asked = [ask for n in range(CLIENTS) for ask in plans[n].first(done[n])]
    gone.add(forgotten(asked))
    assert not (found := gone.found_in(store)), found[:5]
    assert not (left := list(store.glob(".*"))), left  # of a checkpoint that was killed
    check(store, clf, asked)
    print(f"{head}: {killed} kills, {sum(done)} acknowledged, {len(forgotten(asked))} forgotten")


def loudly(do: Callable[..., None], *arguments: object) -> None:
    """Say what went wrong in a child, which otherwise ends without a word."""
    try:
        do(*arguments)
    except BaseException:
        traceback.print_exc()
        raise


def heed(lines: Iterable[bytes], done: list[int]) -> None:
    """Note what was acknowledged."""
    for line in lines:
        if line.endswith(b"\n"):
            number, place = map(int, line.split())
            done[number] = place


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
