"""Packages from extras: imported when they are needed, and named when they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from lastlayer.errors import MissingPackageError


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that says how to install the extra."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the extra '{name}', which is not installed ({error}): "
            f"in the clone, run: pip install '.[{name}]'"
        ) from error
