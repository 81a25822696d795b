"""CUB-200-2011: 200 birds, with the official split into train and test."""

from pathlib import Path

import torch

from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.extraction.datasets.images import Images, ImageSet

HOME = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
FOLDER = "CUB_200_2011"


def read_cub200(root: Path) -> ImageSet:
    """Read the images that ``images.txt`` lists, split as ``train_test_split.txt`` says.

    The official archive was unpacked in ``root``, or as ``root``.
    """
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    paths = _table(folder / "images.txt")
    birds = _table(folder / "classes.txt")
    classes = _numbers(folder / "image_class_labels.txt", paths, set(map(int, birds)))
    in_train = _numbers(folder / "train_test_split.txt", paths, {0, 1})
    files = [folder / "images" / path for path in paths.values()]
    _check_there(files)
    rank = {number: place for place, number in enumerate(sorted(map(int, birds)))}
    whole = Images(files, {"class": torch.tensor([rank[number] for number in classes])})
    train, test = (torch.tensor(in_train) == part for part in (1, 0))
    names = tuple(birds[key] for key in sorted(birds, key=int))
    return ImageSet(
        "cub200", whole.take(train.nonzero()[:, 0]), whole.take(test.nonzero()[:, 0]),
        {"class": names},
    )  # fmt: skip


def _table(path: Path) -> dict[str, str]:
    """Read lines of a number and a word, the number first."""
    if not path.is_file():
        raise MissingFileError(
            f"there is no {path}: unpack CUB_200_2011.tgz from {HOME} and pass the folder as root"
        )
    try:
        rows = [line.split(maxsplit=1) for line in path.read_text("utf-8").splitlines() if line]
        table = {str(int(number)): word.strip() for number, word in rows}
    except ValueError as error:
        raise _damaged(path, f"lines of a number and a word: {error}") from error
    if not table or len(table) < len(rows):
        raise _damaged(path, "one line for each number")
    return table


def _numbers(path: Path, ids: dict[str, str], allowed: set[int]) -> list[int]:
    """Return a number for each image, in the order of ``images.txt``."""
    table = _table(path)
    try:
        numbers = [int(table[number]) for number in ids]
    except (KeyError, ValueError) as error:
        raise _damaged(path, f"a whole number for every image: {error}") from error
    if not allowed.issuperset(numbers):
        raise _damaged(path, f"only numbers that it may hold, got {set(numbers) - allowed}")
    return numbers


def _check_there(files: list[Path]) -> None:
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise MissingFileError(
            f"{len(missing)} of the {len(files)} images of images.txt are missing, the first is "
            f"{missing[0]}: unpack CUB_200_2011.tgz from {HOME} again"
        )


def _damaged(path: Path, expected: str) -> FileFormatError:
    return FileFormatError(
        f"{path} must hold {expected}: unpack CUB_200_2011.tgz from {HOME} again"
    )
