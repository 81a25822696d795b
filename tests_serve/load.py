"""What eight clients ask of a live head, in the same order however often they are interrupted."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLIENTS, WIDTH = 8, 6
LABELS = ("ant", "bee", "cat", "dog")


@dataclass(frozen=True)
class Ask:
    kind: str  # learn, forget, predict, or label: of a row that was predicted under an id
    name: str
    rows: np.ndarray
    labels: tuple[str, ...]


class Plan:
    """What a client asks, drawn as far as it is needed; it forgets some of what it has learned."""

    def __init__(self, client: int, seed: int) -> None:
        self._random = np.random.default_rng([seed, client])
        self._client, self._mine = client, list[tuple[np.ndarray, str]]()
        self._asks: list[Ask] = []

    def at(self, place: int) -> Ask:
        while len(self._asks) <= place:
            self._asks.append(self._next(f"{self._client}-{len(self._asks)}"))
        return self._asks[place]

    def first(self, count: int) -> list[Ask]:
        return [self.at(place) for place in range(count)]

    def _next(self, name: str) -> Ask:
        random = self._random
        kind = str(random.choice(["learn", "learn", "label", "forget", "predict"]))
        if kind == "forget" and len(self._mine) > 4:
            row, label = self._mine.pop(int(random.integers(len(self._mine))))
            return Ask("forget", name, row[None], (label,))
        kind = "learn" if kind == "forget" else kind
        rows = random.normal(size=(int(random.integers(1, 4)) if kind == "learn" else 1, WIDTH))
        if kind == "predict":
            return Ask(kind, name, rows, ())
        labels = tuple(random.choice(LABELS, size=len(rows)).tolist())
        self._mine += zip(rows, labels, strict=True)
        return Ask(kind, name, rows, labels)


def learned(asks: list[Ask]) -> Counter[tuple[bytes, str]]:
    """Return what is left of the rows after all of it, each with its label."""
    left: Counter[tuple[bytes, str]] = Counter()
    for ask in asks:
        if ask.kind == "predict":
            continue
        for row, label in zip(ask.rows, ask.labels, strict=True):
            left[row.tobytes(), label] += -1 if ask.kind == "forget" else 1
    assert min(left.values()) >= 0
    return +left


def forgotten(asks: list[Ask]) -> np.ndarray:
    rows = [ask.rows for ask in asks if ask.kind == "forget"]
    return np.concatenate(rows) if rows else np.empty((0, WIDTH))


class Traces:
    """Looks for any 16 bytes of rows, as JSON, float32 or float64, in files."""

    def __init__(self) -> None:
        self._rows: set[bytes] = set()
        self._windows: set[bytes] = set()
        self._marks = np.zeros(1 << 24, dtype=bool)  # of the first eight bytes of each window

    def add(self, rows: np.ndarray) -> None:
        fresh = {text for row in rows if row.tobytes() not in self._rows
                 for text in forms(row)}  # fmt: skip
        self._rows |= {row.tobytes() for row in rows}
        windows = {text[i : i + 16] for text in fresh for i in range(len(text) - 15)}
        self._windows |= windows
        self._marks[marks(np.frombuffer(b"".join(w[:8] for w in windows), dtype="<u8"))] = True

    def found_in(self, folder: Path) -> list[str]:
        found = []
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            content = file.read_bytes()
            for shift in range(8):
                size = max(len(content) - shift, 0) // 8 * 8
                eights = np.frombuffer(content[shift : shift + size], dtype="<u8")
                for place in np.flatnonzero(self._marks[marks(eights)]):
                    at = shift + 8 * int(place)
                    if content[at : at + 16] in self._windows:
                        found.append(f"{file.name} at {at}")
        return found


def forms(row: np.ndarray) -> list[bytes]:
    numbers = [*map(repr, row.tolist())]
    return [row.astype("<f8").tobytes(), row.astype("<f4").tobytes(),
            ", ".join(numbers).encode(), ",".join(numbers).encode()]  # fmt: skip


def marks(eights: np.ndarray) -> np.ndarray:
    """Return 24 bits of each number that depend on all of its own."""
    return (eights * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
