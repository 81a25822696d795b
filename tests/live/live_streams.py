"""A small stream of three classes, and live heads that have begun with some of it."""

import numpy as np

import lastlayer as ll

Rows = tuple[np.ndarray, list[str]]


def made_up(n: int, seed: int = 0, width: int = 5, classes: int = 3) -> Rows:
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return random.normal(size=(n, width)) + 3 * y[:, None], [f"c{c}" for c in y]


def begun(head: str = "slda", n: int = 60, **options: object) -> ll.HeadClassifier:
    return ll.HeadClassifier(head, options=options or None, random_state=0).fit(*made_up(n, 9))
