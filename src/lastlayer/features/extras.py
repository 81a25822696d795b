"""What only an extra brings: asked for when it is needed, and named when missing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lastlayer.errors import MissingPackageError


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Say how to install what an import within lacks."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs a package that is not installed ({error}): "
            f"the extra '{name}' brings it, in a clone by: pip install '.[{name}]'"
        ) from error


def images_extra(purpose: str) -> AbstractContextManager[None]:
    """Say how to install what only ``images`` brings."""
    return extra("images", purpose)
