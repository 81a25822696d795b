"""What a head must be able to do where it will run, and sizes and times as people write them."""

import re
from dataclasses import dataclass, fields

from lastlayer.catalogue.head_cards import card_of, size_in_words
from lastlayer.core.checks import real, short, whole
from lastlayer.errors import OptionError

_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20,
          "gib": 2**30}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


@dataclass(frozen=True)
class Needs:
    """Constraints; a head that meets them all may be advised."""

    linear: bool = False  # it must be a plain nn.Linear
    memory: int | None = None  # bytes that its state may take
    no_samples: bool = False  # it may keep no rows
    forgets: bool = False  # it must be able to forget samples
    latency: float | None = None  # seconds that one prediction may take

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the constraints that were set."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) not in (None, False))

    def unmet(self, head: str, size: int, latency: float) -> tuple[str, ...]:
        """Return the constraints that a head does not meet.

        >>> Needs(linear=True, memory=1000).unmet("knn", size=4000, latency=1e-3)
        ('linear', 'memory')
        """
        can = card_of(head).abilities
        wrong = {
            "linear": self.linear and not can.linear,
            "memory": self.memory is not None and size > self.memory,
            "no_samples": self.no_samples and can.keeps_samples,
            "forgets": self.forgets and not can.forgets,
            "latency": self.latency is not None and latency > self.latency,
        }
        return tuple(name for name, is_wrong in wrong.items() if is_wrong)

    def words(self, name: str) -> str:
        """Return a constraint as it is typed."""
        if name == "memory" and self.memory is not None:
            return f"--memory {size_in_words(self.memory).replace(' ', '')}"
        if name == "latency" and self.latency is not None:
            return f"--latency {1e3 * self.latency:g}ms"
        return f"--{name.replace('_', '-')}"


def read_bytes(text: str | int) -> int:
    """Read a size of memory; a plain number counts bytes.

    >>> read_bytes("1MB"), read_bytes("64 KiB"), read_bytes("500")
    (1000000, 65536, 500)
    """
    if isinstance(text, str):
        return int(_read(text, _BYTES, "memory must be a size such as 1MB or 64KiB"))
    return whole(text, "memory", least=1)


def read_seconds(text: str | float) -> float:
    """Read a time; a plain number counts seconds.

    >>> read_seconds("1ms"), read_seconds("0.5 s")
    (0.001, 0.5)
    """
    if isinstance(text, str):
        return _read(text, _SECONDS, "latency must be a time such as 1ms or 0.5s")
    return real(text, "latency")


def _read(text: str, units: dict[str, float] | dict[str, int], what: str) -> float:
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zµ]*)\s*", text.lower())
    if match is None or match[2] not in units or float(match[1]) <= 0:
        raise OptionError(f"{what}, got '{short(text)}'")
    return float(match[1]) * units[match[2]]


def time_in_words(seconds: float) -> str:
    """Return a short time as a person would say it.

    >>> time_in_words(0.00004), time_in_words(0.0123)
    ('40 µs', '12 ms')
    """
    for unit, word in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.2g} {word}"
    return f"{seconds * 1e6:.0f} µs"
