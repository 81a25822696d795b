"""Your own images: a folder for each class, optionally within domains and splits."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from lastlayer.data.hold_out import TEST, stratified
from lastlayer.data.label_values import encode
from lastlayer.errors import FileFormatError, OptionError
from lastlayer.extraction.datasets.decoding import SUFFIXES
from lastlayer.extraction.datasets.images import Images, ImageSet

LAYOUT = (
    "ROOT/class/image.jpg or ROOT/domain/class/image.jpg, both also below ROOT/train, ROOT/test"
)
_SPLITS = ({"train", "test"}, {"train", "val"})


def read_folder(root: Path, test: float | None = None, seed: int = 0) -> ImageSet:
    """Read ``root/class/…`` or ``root/domain/class/…``; folders name classes and domains.

    A folder that holds just ``train`` and ``test`` (or ``val``) is split so; of another the share
    ``test`` of each class is drawn, 0.2 if not given. The label columns are class and, where there
    are domains, domain.
    """
    inside = {path.name: path for path in root.iterdir() if path.is_dir() and _visible(path)}
    given = set(inside) in _SPLITS
    if given and test is not None:
        raise OptionError(f"{root} has a test set of its own: leave out the share to draw")
    tops = [inside["train"], inside.get("test") or inside["val"]] if given else [root]
    found = [list(_find(top)) for top in tops]
    levels = _levels(tops, found)
    whole, names = _labelled([path for paths in found for path in paths], levels)
    if given:
        n = len(found[0])
        train, held_out = torch.arange(n), torch.arange(n, len(whole))
    else:
        train, held_out = stratified(whole.labels["class"], TEST if test is None else test, seed)
    return ImageSet("folder", whole.take(train), whole.take(held_out), names)


def _visible(path: Path) -> bool:
    return not path.name.startswith(".")  # .DS_Store, and ._a.jpg, which is no picture


def _find(folder: Path) -> Iterator[Path]:
    """Find the images below a folder, in the order of their names."""
    entries = sorted(filter(_visible, folder.iterdir()))
    files = [path for path in entries if path.is_file()]
    pictures = [path for path in files if path.suffix.lower() in SUFFIXES]
    below = [path for path in entries if path.is_dir()]
    if files and not pictures and not below:
        raise FileFormatError(
            f"{folder} must hold images, but has only files such as {files[0].name}: "
            "convert them to .jpg or .png, or move the folder away"
        )
    yield from pictures
    for inner in below:
        yield from _find(inner)


def _levels(tops: Sequence[Path], found: Sequence[Sequence[Path]]) -> int:
    """Count the folders above each image: 1 for classes, 2 for domains of classes."""
    examples: dict[int, Path] = {}
    for top, paths in zip(tops, found, strict=True):
        if not paths:
            raise FileFormatError(f"there are no images below {top}; the layout is {LAYOUT}")
        for path in paths:
            examples.setdefault(len(path.relative_to(top).parts) - 1, path)
    if len(examples) > 1 or not examples.keys() <= {1, 2}:
        found_so = " and ".join(map(str, examples.values()))
        raise FileFormatError(f"images must lie as {LAYOUT}, the same everywhere, got {found_so}")
    return next(iter(examples))


def _labelled(paths: list[Path], levels: int) -> tuple[Images, dict[str, tuple[str, ...]]]:
    values = {"class": [path.parent.name for path in paths]}
    if levels == 2:
        values["domain"] = [path.parent.parent.name for path in paths]
    encoded = {column: encode(column, folders) for column, folders in values.items()}
    labels = {column: codes for column, ((codes,), _) in encoded.items()}
    return Images(paths, labels), {column: names for column, (_, names) in encoded.items()}
