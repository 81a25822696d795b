"""Load features by name, or from a file."""

import os
from pathlib import Path

from lastlayer.core.checks import a_path, expect
from lastlayer.core.names import look_up
from lastlayer.data.features import Features
from lastlayer.data.tables.open_table import SUFFIXES
from lastlayer.errors import FileFormatError, UnknownNameError

BUNDLED = ("cifar10/resnet20-cifar100", "cifar100/resnet20-cifar100")
SHORT = {name.partition("/")[0]: name for name in BUNDLED}
TABLES = tuple(suffix for suffix in SUFFIXES if suffix != ".safetensors")


def load_features(name: str | os.PathLike[str], label: str | None = None) -> Features:
    """Load a bundled feature set by its name, or a file that ``save`` or the commands wrote.

    The names are ``cifar10``, ``cifar100``, or full ones such as ``cifar10/resnet20-cifar100``. The
    label column to learn is the primary one if not named.

    >>> load_features("cifar100", label="coarse").n_classes
    20
    >>> load_features("cifar11")
    Traceback (most recent call last):
    ...
    lastlayer.errors.UnknownNameError: unknown feature set 'cifar11'; did you mean 'cifar10'? \
there are: cifar10, cifar100, cifar10/resnet20-cifar100, cifar100/resnet20-cifar100; \
or pass the path of a file made by 'lastlayer import' or 'lastlayer extract'
    """
    expect(name, (str, os.PathLike), "name", "the name of a feature set or the path of a file")
    data = Features.read(_path(name))
    return data if label is None else data.with_label(label)


def short_name(name: str) -> str:
    """Return the short name of bundled features, and any other name as it is.

    >>> short_name("cifar10/resnet20-cifar100"), short_name("mine.safetensors")
    ('cifar10', 'mine.safetensors')
    """
    return {full: short for short, full in SHORT.items()}.get(name, name)


def _path(name: str | os.PathLike[str]) -> Path:
    known = SHORT | {full: full for full in BUNDLED}
    if isinstance(name, os.PathLike) or (name not in known and _is_file_name(name)):
        return _not_a_table(a_path(name))
    try:
        file = f"{look_up(name, known, 'feature set').replace('/', '.')}.safetensors"
        return Path(__file__).parent / "bundled" / file
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{error}; or pass the path of a file made by 'lastlayer import' or 'lastlayer extract'"
        ) from None


def _not_a_table(path: Path) -> Path:
    if path.suffix.lower() in TABLES:
        raise FileFormatError(
            f"{path} is not a features file (.safetensors); make one with: lastlayer import "
            f"{path} --embedding COLUMN --label COLUMN --out {path.with_suffix('.safetensors')}"
        )
    return path


def _is_file_name(name: str) -> bool:
    return name.lower().endswith((".safetensors", *TABLES)) or os.path.isfile(name)
