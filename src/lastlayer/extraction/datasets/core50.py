"""Core50: 50 objects of 10 categories, filmed in 11 sessions, as its authors published it."""

import re
from pathlib import Path

import torch

from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.extraction.datasets.images import Images, ImageSet

HOME = "https://vlomonaco.github.io/core50/"
FOLDER = "core50_128x128"
SESSIONS, OBJECTS, PER_CATEGORY = 11, 50, 5
TEST_SESSIONS = (3, 7, 10)
CATEGORIES = (
    "plug adapters", "mobile phones", "scissors", "light bulbs", "cans",
    "glasses", "balls", "markers", "cups", "remote controls",
)  # fmt: skip
_FRAME = re.compile(r"C_(\d+)_(\d+)_(\d+)\.png")


def read_core50(root: Path) -> ImageSet:
    """Read ``s1…s11/o1…o50/C_ss_oo_fff.png``: sessions 3, 7 and 10 are the test set.

    The official archive was unpacked in ``root``, or as ``root``. The label columns are object,
    category and session, all in the order of their numbers.
    """
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    sessions = range(1, SESSIONS + 1)
    train, test = (
        _read(folder, [s for s in sessions if (s in TEST_SESSIONS) == held_out])
        for held_out in (False, True)
    )
    names = {
        "object": tuple(f"o{number}" for number in range(1, OBJECTS + 1)),
        "category": CATEGORIES,
        "session": tuple(f"s{number}" for number in sessions),
    }
    return ImageSet("core50", train, test, names)


def _read(folder: Path, sessions: list[int]) -> Images:
    paths: list[Path] = []
    rows: list[tuple[int, int, int]] = []
    for session in sessions:
        for number in range(1, OBJECTS + 1):
            found = _frames(folder, session, number)
            paths += found
            rows += [(number - 1, (number - 1) // PER_CATEGORY, session - 1)] * len(found)
    columns = torch.tensor(rows).T
    labels = dict(zip(("object", "category", "session"), columns, strict=True))
    return Images(paths, {name: column.contiguous() for name, column in labels.items()})


def _frames(folder: Path, session: int, number: int) -> list[Path]:
    """List the frames of one object in one session, in the order in which they were filmed."""
    place = folder / f"s{session}" / f"o{number}"
    if not place.is_dir():
        raise MissingFileError(
            f"there is no {place}: there must be folders s1 to s{SESSIONS} with o1 to o{OBJECTS} "
            f"in each; unpack {FOLDER}.zip from {HOME} and pass the folder as root"
        )
    frames = []
    for path in place.iterdir():
        match = _FRAME.fullmatch(path.name)
        if match and tuple(map(int, match.groups()[:2])) != (session, number):
            raise FileFormatError(
                f"{place} must hold frames of session {session} and object {number}, but "
                f"{path.name} is of others: unpack {FOLDER}.zip from {HOME} again"
            )
        if match:
            frames.append((int(match[3]), path))
    if not frames:
        raise FileFormatError(
            f"there are no frames such as C_{session:02}_{number:02}_000.png in {place}: "
            f"unpack {FOLDER}.zip from {HOME} again"
        )
    return [path for _, path in sorted(frames)]
