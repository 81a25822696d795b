"""How many wrong forgettings are caught, by head: python -m benchmarks.wrong_forgetting.

Every head that can forget learns 20 or 500 samples of each class of the bundled sets. Then it is
asked to forget samples that it has never seen: rows of the test set with their own labels, rows
that it has learned with other labels, and random rows of the same spread; 1, 10 or as many as the
class has. As many right forgettings are tried, which must all be accepted.
"""

import argparse
import copy
import random
from collections import Counter

import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import DataError
from lastlayer.heads import Head

SIZES = (20, 500)  # samples of each class that were learned
KINDS = ("never seen", "wrong label", "random")
OPTIONS = {"random_ridge": {"width": 500}, "random_slda": {"width": 500}}
Sample = tuple[Tensor, Tensor]


def learned(name: str, data: ll.Features, size: int) -> tuple[Head, Sample]:
    """Return a head that has learned so many samples of each class, and these samples."""
    order = data.train.y.argsort(stable=True)
    first = data.train.y.bincount().cumsum(0) - data.train.y.bincount()
    rows = torch.cat([order[f : f + size] for f in first.tolist()])
    z, y = data.train.z[rows].double(), data.train.y[rows]
    head = ll.make_head(name, data.in_features, **OPTIONS.get(name, {}))
    head.observe(z, y)
    return head, (z, y)


def wrong(kind: str, k: int, own: Sample, data: ll.Features, generator: torch.Generator) -> Sample:
    """Return k samples of one class that were never observed with that label."""
    z, y = own
    classes = int(y.max()) + 1
    c = int(torch.randint(classes, (1,), generator=generator))
    if kind == "never seen":
        rows = (data.test.y == c).nonzero().flatten()
        chosen = rows[torch.randint(len(rows), (k,), generator=generator)]
        return data.test.z[chosen].double(), torch.full((k,), c)
    if kind == "wrong label":
        rows = (y != c).nonzero().flatten()
        return z[rows[torch.randint(len(rows), (k,), generator=generator)]], torch.full((k,), c)
    mine = z[y == c]
    noise = torch.randn(k, z.shape[1], generator=generator, dtype=z.dtype)
    return mine.mean(dim=0) + noise * mine.std(dim=0), torch.full((k,), c)


def right(k: int, own: Sample, generator: torch.Generator) -> Sample:
    """Return k samples of one class that were observed."""
    z, y = own
    c = int(torch.randint(int(y.max()) + 1, (1,), generator=generator))
    rows = (y == c).nonzero().flatten()
    chosen = rows[torch.randperm(len(rows), generator=generator)[:k]]
    return z[chosen], y[chosen]


def refused(head: Head, sample: Sample) -> bool:
    """Return whether a copy of a head refuses to forget."""
    try:
        copy.deepcopy(head).forget(*sample)
    except DataError:
        return True
    return False


def tried(name: str, sets: dict[str, ll.Features], tries: int) -> tuple[Counter, Counter, int]:
    """Count requests and refusals by size and type, and correct ones that were refused."""
    chance, generator = random.Random(0), torch.Generator().manual_seed(0)
    made = {(s, size): learned(name, data, size) for s, data in sets.items() for size in SIZES}
    asked: Counter[tuple[int, str]] = Counter()
    caught: Counter[tuple[int, str]] = Counter()
    mistaken = 0
    for _ in range(tries):
        which, size, kind = chance.choice(list(sets)), chance.choice(SIZES), chance.choice(KINDS)
        k = chance.choice((1, 10, size))
        head, own = made[which, size]
        asked[size, kind] += 1
        caught[size, kind] += refused(head, wrong(kind, k, own, sets[which], generator))
        mistaken += refused(head, right(k, own, generator))
    return asked, caught, mistaken


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=1000)
    tries = parser.parse_args().tries
    sets = {name: ll.load_features(name) for name in ("cifar10", "cifar100")}
    columns = [(size, kind) for size in SIZES for kind in KINDS]
    titles = [f"{kind}, of {size}" for size, kind in columns]
    print("|", " | ".join(["head", *titles, "all", "correct ones refused"]), "|")
    print("|---" * (len(columns) + 3) + "|")
    for name, card in HEADS.items():
        if card.abilities.forgets:
            asked, caught, mistaken = tried(name, sets, tries)
            cells = [f"{caught[c]} of {asked[c]}" for c in columns]
            total = f"{caught.total()} of {asked.total()}"
            print("|", " | ".join([f"`{name}`", *cells, total, str(mistaken)]), "|", flush=True)
