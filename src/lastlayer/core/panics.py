"""What polars' Rust prints of a damaged table, kept from the terminal: the error says it in a line.

Rust writes where a panic was to the process's own stderr before Python learns of it. So the program
moves that aside while a table is read, and prints what is no panic afterwards. A library must not
do so to its caller: only the command line asks for it.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import IO, Any, TextIO

_PANIC = b"panicked at"


class _Aside:
    """The process's stderr, moved aside while anybody reads; Python's own goes on."""

    def __init__(self) -> None:
        self.wanted = False
        self._lock, self._readers = Lock(), 0
        # Both stay open for ever: other threads may be about to write to them.
        self._real = -1
        self._ours: TextIO | None = None
        self._python: TextIO | None = None
        self._said: IO[Any] | None = None

    def begin(self) -> None:
        with self._lock:
            self._readers += 1
            if self._readers > 1:
                return
            if self._ours is None:
                self._real = os.dup(2)
                self._ours = open(  # noqa: SIM115  (see above)
                    self._real, "w", buffering=1, errors="backslashreplace", closefd=False
                )
            else:
                os.dup2(2, self._real, inheritable=False)  # as it is now
            self._python = sys.stderr
            if _is_real(sys.stderr):
                sys.stderr.flush()
                sys.stderr = self._ours
            self._said = tempfile.TemporaryFile()  # noqa: SIM115
            os.dup2(self._said.fileno(), 2)

    def end(self) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers or self._said is None:
                return
            if self._ours is not None:
                self._ours.flush()
            if sys.stderr is self._ours and self._python is not None:
                sys.stderr = self._python
            os.dup2(self._real, 2)
            with self._said as said:
                said.seek(0)
                text = said.read()
            if _PANIC not in text:
                os.write(2, text)


_ASIDE = _Aside()


def keep_from_terminal() -> None:
    """Print no panic from now on: for a program of ours."""
    _ASIDE.wanted = True


@contextmanager
def without_panics() -> Iterator[None]:
    """Print no panic while a table is read, if that was asked for."""
    if not _ASIDE.wanted:
        yield
        return
    _ASIDE.begin()
    try:
        yield
    finally:
        _ASIDE.end()


def _is_real(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.fileno() == 2
    except (OSError, ValueError):
        return False
