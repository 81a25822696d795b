"""The stream in words, from the data."""

import pytest
import torch

import lastlayer as ll
from lastlayer.advice.stream_words import describe, moved_classes
from lastlayer.evaluate.stream import lay_out
from small_streams import blobs


def _returning(shift, seed=0, n=400, n_tasks=4):
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (n,), generator=random)
    task = torch.randint(0, n_tasks, (n,), generator=random)
    z = torch.randn(n, 6, generator=random) + y[:, None] + shift * task[:, None]
    return ll.Features.from_arrays(z, y, test=(z[:5], y[:5]), task=task)


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [(None, "all at once"), ("incremental:2", "incremental"), ("lifelong:day", "lifelong"),
     ("mixed:part", "mixed")],
)  # fmt: skip
def test_kinds_are_seen_in_the_data(scenario, kind):
    n = 400
    day = torch.arange(n) // 100
    part = (torch.arange(n) % 4 > 1).long() + 2 * (day > 2)
    found = describe(lay_out(blobs(n, day=day, part=part), scenario))
    assert found.kind == kind


def test_classes_that_move_are_found():
    found = describe(lay_out(_returning(0.5), "mixed:task"))
    assert found.moved == (0, 1, 2, 3, 4)
    assert found.shift > 0.2
    assert any("5 of 5 returning classes move" in text for text in found.sentences)


def test_classes_that_stay_raise_few_false_alarms():
    alarms = sum(
        bool(moved_classes(lay_out(_returning(0.0, seed), "mixed:task"), range(5), seed)[0])
        for seed in range(60)
    )
    assert alarms <= 4


def test_sources_that_vary_are_no_drift():
    """Rows of a source resemble one another; that a task has few sources is not that it moves."""
    random = torch.Generator().manual_seed(0)
    source = torch.arange(600) // 20
    y = torch.arange(600) % 2
    z = 2 * torch.randn(30, 4, generator=random)[source] + torch.randn(600, 4, generator=random)
    data = ll.Features.from_arrays(z, y, test=(z[:4], y[:4]), task=source // 10, source=source)
    assert describe(lay_out(data, "mixed:task")).moved
    assert describe(lay_out(data, "mixed:task", group="source")).moved == ()


def test_duplicates_and_conflicting_labels_are_counted():
    data = blobs(n=100)
    z = torch.cat([data.train.z, data.train.z[:3]])
    y = torch.cat([data.train.y, (data.train.y[:3] + 1) % 4])
    z, y = torch.cat([z, z[20:25]]), torch.cat([y, y[20:25]])
    test = (torch.cat([data.train.z[10:14], torch.randn(6, 6)]), y[:10])
    found = describe(lay_out(ll.Features.from_arrays(z, y, test=test), None))
    assert (found.duplicates, found.copies, found.conflicting) == (4, 5, 3)
    assert "5 training rows are exact copies of others" in str(found)


def test_rows_among_other_labels_are_named():
    data = blobs(n=400, noise=0.05)
    y = data.train.y.clone()
    y[17] = (y[17] + 1) % 4
    found = describe(lay_out(ll.FeatureSet(data.train.z, {"y": y}), None))
    assert found.odd == (17,)


def test_imbalance_is_told_of():
    y = torch.cat([torch.zeros(300), torch.ones(10)]).long()
    found = describe(lay_out(ll.FeatureSet(torch.randn(310, 3), {"y": y}), None))
    assert any("30 times the rows" in text for text in found.sentences)
