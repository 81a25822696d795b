"""Rows held out: stratified, whole sources, and each row once in five turns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastlayer.data import FeatureSet
from lastlayer.data.hold_out import hold_out
from lastlayer.errors import DataError
from lastlayer.evaluate.splits import splits_of
from lastlayer.evaluate.stream import lay_out
from small_streams import blobs


@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=80),
    n_tasks=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_every_class_keeps_a_row_and_few_rows_are_taken(labels, n_tasks, seed):
    y = torch.tensor(labels)
    task = torch.arange(len(y)) % n_tasks
    held = hold_out(y, task, None, part=0.2, turn=1, seed=seed)
    assert set(y[~held].tolist()) == set(labels)
    assert held.sum() <= len(y) // 5 + 1


def test_each_class_of_each_task_gives_its_part():
    y, task = torch.arange(400) % 4, torch.arange(400) // 200
    held = hold_out(y, task, None, part=0.2, turn=0, seed=0)
    cells = (task * 4 + y)[held].bincount(minlength=8)
    assert cells.tolist() == [10] * 8


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), n_groups=st.integers(5, 60))
def test_rows_of_a_source_never_straddle(seed, n_groups):
    random = torch.Generator().manual_seed(seed)
    group = torch.randint(0, n_groups, (300,), generator=random)
    y, task = torch.arange(300) % 3, torch.arange(300) // 100
    held = hold_out(y, task, group, part=0.2, turn=0, seed=seed)
    assert not set(group[held].tolist()) & set(group[~held].tolist())
    assert held.any()
    assert set(y[~held].tolist()) == {0, 1, 2}


def test_few_rows_are_held_out_once_each():
    stream = lay_out(blobs(400), "incremental:2")
    splits = splits_of(stream)
    assert len(splits) == 10
    times = torch.cat([split.held for split in splits[:5]]).bincount(minlength=400)
    assert times.tolist() == [1] * 400
    for split in splits:
        assert not set(split.held.tolist()) & set(torch.cat(split.tasks).tolist())


def test_many_rows_are_split_once():
    z = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    stream = lay_out(FeatureSet(z, {"y": torch.arange(20_000) % 2}), None)
    assert [len(split.held) for split in splits_of(stream)] == [4000]


def test_single_rows_cannot_be_held_out():
    stream = lay_out(FeatureSet(torch.randn(5, 2), {"y": torch.arange(5)}), None)
    with pytest.raises(DataError, match="each class has a single row"):
        splits_of(stream)
