"""Small files in the layout of CIFAR, written as its authors' Python 2 wrote them."""

import hashlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastlayer.extraction.datasets.cifar import CIFAR, Version

Array = np.ndarray[Any, Any]


def py2_text(text: str | bytes) -> bytes:
    raw = text.encode("latin1") if isinstance(text, str) else text
    return b"T" + struct.pack("<i", len(raw)) + raw


def py2_list(values: list[Any]) -> bytes:
    items = [py2_text(v) if isinstance(v, str) else b"K" + bytes([v]) for v in values]
    return b"](" + b"".join(items) + b"e"


def py2_array(x: Array) -> bytes:
    """Write a two-dimensional uint8 array as numpy 1 does under protocol 2."""
    start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    shape = b"(" + b"".join(b"J" + struct.pack("<i", n) for n in x.shape) + b"t"
    minus_one = b"J\xff\xff\xff\xff"
    state = b"(K\x03U\x01|NNN" + 2 * minus_one + b"K\x00tb"
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR" + state
    return start + b"(K\x01" + shape + dtype + b"\x89" + py2_text(x.tobytes()) + b"tb"


def py2_dict(values: dict[str, bytes]) -> bytes:
    items = b"".join(py2_text(key) + value for key, value in values.items())
    return b"\x80\x02}(" + items + b"u."


def make_images(n: int, classes: dict[str, int], seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    labels = {c: np.append(rng.integers(0, k, n - 1), k - 1) for c, k in classes.items()}
    return {"x": rng.integers(0, 256, (n, 3072), dtype=np.uint8), **labels}


def python_batch(images: dict[str, Array], keys: dict[str, str]) -> bytes:
    labels = {key: py2_list(images[column].tolist()) for column, key in keys.items()}
    return py2_dict({"data": py2_array(images["x"]), "batch_label": py2_text("b"), **labels})


def binary_batch(images: dict[str, Array], columns: tuple[str, ...]) -> bytes:
    labels = [images[column].astype(np.uint8)[:, None] for column in columns]
    return np.hstack([*labels, images["x"]]).tobytes()


def write(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, n: int = 6) -> Path:
    """Write a data set in one version, and let its checksums be the official ones."""
    classes = {"class": 3} if name == "cifar10" else {"fine": 5, "coarse": 2}
    python, binary = CIFAR[name]
    version = python if kind == "python" else binary
    folder = root / version.folder
    folder.mkdir(parents=True)
    md5: dict[str, str] = {}
    for seed, file in enumerate([*version.train, *version.test]):
        images = make_images(n, classes, seed)
        parse: Any = version.parse  # a partial, which holds the layout
        writer: Any = python_batch if kind == "python" else binary_batch
        content = writer(images, *parse.keywords.values())
        (folder / file).write_bytes(content)
        md5[file] = hashlib.md5(content).hexdigest()
    _write_names(folder, version, classes, kind, md5)
    official = replace(
        version,
        train={file: md5[file] for file in version.train},
        test={file: md5[file] for file in version.test},
        names={c: (file, md5[file], key) for c, (file, _, key) in version.names.items()},
    )
    versions = (official, binary) if kind == "python" else (python, official)
    monkeypatch.setitem(CIFAR, name, versions)
    return folder


def _write_names(
    folder: Path, version: Version, classes: dict[str, int], kind: str, md5: dict[str, str]
) -> None:
    names = {c: [f"{c}_{i}" for i in range(k)] for c, k in classes.items()}
    meta = py2_dict({key: py2_list(names[c]) for c, (_, _, key) in version.names.items()})
    for column, (file, _, _) in version.names.items():
        listed = ("\n".join(names[column]) + "\n\n").encode()
        (folder / file).write_bytes(meta if kind == "python" else listed)
        md5[file] = (
            hashlib.md5((folder / file).read_bytes()).hexdigest() if kind == "python" else ""
        )
