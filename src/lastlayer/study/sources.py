"""Where a plan's features are: bundled, in a folder by their full name, or a file."""

from pathlib import Path

from lastlayer.errors import MissingFileError, UnknownNameError
from lastlayer.features import Features, FeatureSet, load_features
from lastlayer.features.split import stratified


def find_features(name: str, folder: Path) -> Features:
    """Load features by a name that is bundled, a full name in the folder, or a file."""
    stored = folder / f"{name}.safetensors"
    if stored.is_file():
        return load_features(stored)
    try:
        return load_features(name)
    except UnknownNameError as error:
        if "/" not in name:
            raise
        command = how_to_make(name, folder)
        raise MissingFileError(
            f"no features '{name}': expected the file {stored}, made by: {command}"
        ) from error


def how_to_make(name: str, folder: Path) -> str:
    """Give the command that makes features by their full name.

    >>> how_to_make("core50/vgg16", Path("mine"))
    'lastlayer extract core50 --root DIR --backbone vgg16 --out mine/core50/vgg16.safetensors'
    """
    dataset, _, backbone = name.partition("/")
    weights = " --weights FILE" if backbone.startswith("resnet20") else ""
    return (
        f"lastlayer extract {dataset} --root DIR --backbone {backbone}{weights} "
        f"--out {folder / name}.safetensors"
    )


def hold_out(data: Features, share: float) -> Features:
    """Put a part of each class of the training data in the place of the test data."""
    train, test = (
        FeatureSet(
            data.train.z[rows],
            {name: column[rows] for name, column in data.train.labels.items()},
            data.train.label,
            check=False,
        )
        for rows in stratified(data.train.y, share, seed=0)
    )
    return Features(train, test, data.names, data.origin)
