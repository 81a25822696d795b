"""Whether two classifiers have learned the same."""

import numpy as np
import polars as pl
import torch

from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head


def statistics_of(head: Head) -> dict[str, torch.Tensor]:
    """Give what a head has learned, without what depends on the path that it took."""
    state = head.state_dict()
    return {
        name: (tensor.tril() if name.endswith("scatter") else tensor).double()  # half is never read
        for name, tensor in state.items()
        if not name.endswith("wear")
    }


def assert_same(one: HeadClassifier, other: HeadClassifier, rows: np.ndarray) -> None:
    """Statistics to 1e-9 of their size, and the same answer for every row."""
    assert one.classes_.tolist() == other.classes_.tolist()
    mine, others = statistics_of(one.head_), statistics_of(other.head_)
    assert mine.keys() == others.keys()
    for name, tensor in mine.items():
        assert tensor.shape == others[name].shape, name
        size = float(tensor.abs().max()) if tensor.numel() else 0.0
        assert torch.allclose(tensor, others[name], rtol=1e-9, atol=1e-9 * size), name
    assert answers(one, rows) == answers(other, rows)


def answers(clf: HeadClassifier, rows: np.ndarray) -> list[object]:
    """Predict rows of an array, under the names of columns where it has learned some."""
    named = pl.DataFrame(rows, schema=clf.column_names) if clf.column_names else rows
    return list(clf.predict(named))
