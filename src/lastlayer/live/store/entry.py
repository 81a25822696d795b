"""What is asked of a live head: rows to learn or forget, or an input that waits for its label."""

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]  # (n, h), float16 to float64
LEARN, FORGET, RELABEL, FOLD = "learn", "forget", "relabel", "fold"
AWAIT, LABEL, DROP = "await", "label", "drop"
CHANGES = (LEARN, FORGET, RELABEL, LABEL)  # what changes the head


@dataclass(frozen=True, eq=False)
class Entry:
    """One request for the writer.

    ``await`` keeps the row that was answered under an id; ``label`` learns it, ``drop`` drops it.
    ``fold`` marks where rows that waited in the head were folded in: a replay does the same there.
    """

    kind: str
    z: Rows = field(default_factory=lambda: np.empty((0, 1)))
    labels: tuple[str, ...] = ()  # of the rows: "3" for 3
    to: tuple[str, ...] = ()  # what they become, of a relabel
    request: str | None = None  # its name: the id, of ``await``, ``label`` and ``drop``
    note: str | None = None
    answer: str | None = None  # what was answered to a row that waits, as JSON

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.z)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self.z.nbytes + sum(map(len, self.labels)) + 200

    def digest(self, secret: bytes) -> bytes:
        """Return a hash that says whether another entry asks the same.

        A plain hash would confirm to whoever guesses a forgotten row that it was here: this one
        needs the secret of the store.
        """
        about = [self.kind, str(self.z.dtype), list(self.z.shape), self.labels, self.to]
        found = blake2b(json.dumps(about).encode(), key=secret, digest_size=16)
        found.update(np.ascontiguousarray(self.z).data)
        return found.digest()
