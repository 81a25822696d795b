"""Compute the features of texts on a frozen model, part by part, and write them to a file."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import a_path, whole
from lastlayer.core.names import look_up
from lastlayer.core.progress import Tell
from lastlayer.data import table_rows
from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.features import Features, Origin
from lastlayer.data.from_arrays import Say, encode_columns, find_test
from lastlayer.data.hold_out import stratified
from lastlayer.data.made_by import FOLDER
from lastlayer.data.table_rows import read_splits
from lastlayer.data.tables.open_table import open_table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.extraction.backbones.sentence_models import SentenceModel, load_sentence_model
from lastlayer.extraction.parts import DTYPES, Make, Parts, Piece, fill, fill_on_ray


def extract_texts(
    root: str | os.PathLike[str],
    column: str,
    label: str | None,
    backbone: str | SentenceModel,
    out: str | os.PathLike[str],
    *,
    domains: Sequence[str] = (),
    split: str | None = None,
    test: float | None = None,
    seed: int = 0,
    dtype: str = "float16",
    batch_size: int | None = None,
    device: str = "auto",
    ray: str | None = None,
    progress: Tell = lambda done, total: None,
    say: Say = lambda sentence: None,
) -> Features:
    """Push texts through a frozen model, and keep what comes out as a features file.

    Finished parts are kept in a folder beside ``out`` until all are done: call it again to resume
    an interrupted extraction.

    ``root`` is a table that ``import_features`` takes, with a column of texts in place of
    embeddings; labels, splits and ``say`` are as there. Where there is no split, the share ``test``
    of each class is drawn, 0.2 if not given. The backbone is ``st:NAME_OR_FOLDER``, a model of
    sentence-transformers, or one that is loaded; 64 texts go at once if not said. The rest is as
    ``extract`` takes it.
    """
    kept = look_up(dtype, DTYPES, "type of features")
    batch_size = whole(batch_size or 64, "a batch size", least=1)
    selection = Selection("all", column, label, split, domains, text=True)
    splits = read_splits(open_table(root), selection, say)
    labelled, names = _labelled(splits, test, seed, say)
    model = load_sentence_model(backbone, device) if isinstance(backbone, str) else backbone
    called = backbone if isinstance(backbone, str) else "a model"
    texts = [str(text) for rows, _ in labelled.values() for text in rows]
    weights = model.fingerprint
    setting = {"texts": _digest(texts), "model": weights, "dtype": dtype}
    parts = Parts(a_path(out, "out").absolute(), setting, len(texts))
    if ray is None:
        fill(parts, *_Prepare(texts, model, device, kept, batch_size)(1), progress)
    else:
        # Each node loads the model itself.
        prepare = _Prepare(texts, backbone, device, kept, batch_size)
        fill_on_ray(ray, parts, prepare, progress, files=[], device=device, workers=0)
    z = parts.join().z
    origin = Origin(
        dataset=a_path(root).stem,
        backbone=called if "/" not in called and os.sep not in called else FOLDER,
        weights=weights,
        normalisation=getattr(model, "preparation", ""),
        made=f"lastlayer extract text --root FILE --column {column} --label "
        f"{next(iter(names))} --backbone st:NAME --dtype {dtype} --out FILE",
    )
    parted = zip(z.split([len(rows) for rows, _ in labelled.values()]), labelled, strict=True)
    made = {name: FeatureSet(part, labelled[name][1]) for part, name in parted}
    data = Features.of_splits(made, names, origin)
    data.save(parts.out)
    parts.remove()
    return data


@dataclass(frozen=True)
class _Prepare:
    """Gets ready to make features, here or on a node of a cluster."""

    texts: Sequence[str]
    backbone: str | SentenceModel
    device: str
    dtype: torch.dtype
    batch_size: int

    def __call__(self, cores: int) -> tuple[Make, int]:
        model = self.backbone
        if isinstance(model, str):
            model = load_sentence_model(model, self.device)
        return partial(self._pieces, model), self.batch_size

    def _pieces(self, model: SentenceModel, batches: Sequence[range]) -> Iterator[Piece]:
        for batch in batches:
            z = model([self.texts[row] for row in batch])
            yield Piece.of(torch.tensor(batch), z, self.dtype, lambda row: f"text {row}")


Labelled = dict[str, tuple[Any, dict[str, Tensor]]]


def _labelled(
    read: dict[str, table_rows.Piece], test: float | None, seed: int, say: Say
) -> tuple[Labelled, dict[str, tuple[str, ...]]]:
    """Number the labels of all splits; draw a test set where there is none."""
    splits, drawn = find_test(read, test, seed, say)
    codes, names = encode_columns({name: split.columns for name, split in splits.items()})
    if drawn is None:
        order = [name for name in ("train", "test", "validation") if name in splits]
        return {name: (splits[name].z, codes[name]) for name in order}, names
    ((name, only),) = splits.items()
    parts = stratified(next(iter(codes[name].values())), drawn, seed)
    return {
        part: (only.z[rows.numpy()], {c: y[rows] for c, y in codes[name].items()})
        for part, rows in zip(("train", "test"), parts, strict=True)
    }, names


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(np.int64(len(content)).tobytes() + content)
    return digest.hexdigest()
