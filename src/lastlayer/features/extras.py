"""What only the extra ``images`` brings: asked for when it is needed, and named when missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from lastlayer.errors import MissingPackageError


@contextmanager
def images_extra(purpose: str) -> Iterator[None]:
    """Say how to install what an import within lacks."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs a package that is not installed ({error}): "
            "the extra 'images' brings it, in a clone by: pip install '.[images]'"
        ) from error
