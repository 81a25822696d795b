"""The battery, for what heads behind a map and kernel_ridge may be asked for: the laws hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from streams import H, assert_same_bits, batches, blobs, snapshot
from test_battery_faults import Fault
from torch import Tensor

from lastlayer.catalogue.map_widths import all_products
from lastlayer.errors import DataError
from lastlayer.heads import Head, load_head, make_head

MAPS: list[dict[str, Any]] = [
    *({"map": kind, "rows": rows, "width": 40} for kind in ("relu", "fourier", "quadratic")
      for rows in ("unit", "as_is")),
    {"map": "quadratic", "rows": "unit", "width": all_products(H)},
]  # fmt: skip
ASKED = [
    *((name, options) for name in ("random_ridge", "random_slda") for options in MAPS),
    ("random_ridge@40", {"rows": "unit", "map": "fourier", "penalty": 0.01}),
    ("random_ridge", {"width": 40, "map": "quadratic", "rows": "unit", "weigh": "classes"}),
    ("random_slda", {"width": 40, "map": "fourier", "rows": "unit", "prior": "empirical"}),
    ("kernel_ridge", {"rows": "unit"}),
    ("kernel_ridge", {"bandwidth": 2.0, "penalty": 0.1}),
    ("kernel_ridge", {"rows": "unit", "bandwidth": 0.7}),
    ("kernel_ridge", {"penalty": 0.1}),
]
every_option = pytest.mark.parametrize(
    ("name", "options"), ASKED, ids=lambda part: str(part).replace(" ", "")
)
Rows = tuple[Tensor, Tensor]


def rows(n_classes: int = 4) -> Rows:
    """Classes that overlap, rows of all lengths, and copies."""
    z, y = blobs(n_per_class=30, n_classes=n_classes)
    generator = torch.Generator().manual_seed(1)
    z = (z + torch.randn(z.shape, generator=generator)).double()
    z *= 0.2 + 3 * torch.rand(len(z), 1, generator=generator, dtype=torch.float64)
    return torch.cat([z, z[:9]]), torch.cat([y, y[:9]])


def made(name: str, options: dict[str, Any], first: Tensor) -> Head:
    """Make a head; where first rows fix its map, those that are handed over."""
    head = make_head(name, H, **options)
    return head.fresh(first=first.repeat(12, 1)) if head.rows_to_begin else head


def learned(name: str, options: dict[str, Any], *parts: Rows) -> Head:
    head = made(name, options, rows()[0])
    for z, y in parts:
        head.observe(z, y)
    return head


def assert_alike(one: Head, other: Head) -> None:
    z, _ = rows()
    for answer in (Head.__call__, Head.novelty):
        found, expected = answer(one, z), answer(other, z)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@every_option
def test_neither_order_nor_batches_matter(name: str, options: dict[str, Any]) -> None:
    z, y = rows()
    again = learned(name, options, *batches(z.flip(0), y.flip(0), size=17))
    assert_alike(again, learned(name, options, (z, y)))


@every_option
def test_a_merge_equals_the_union(name: str, options: dict[str, Any]) -> None:
    z, y = rows()
    left, right = (learned(name, options, (z[y < c], y[y < c])) for c in (2, 3))
    union = learned(name, options, (z[y < 2], y[y < 2]), (z[y < 3], y[y < 3]))
    assert_alike(left.merge(right), union)
    if "unit" in options.values() or name == "kernel_ridge":  # nothing need be shared before
        apart = [make_head(name, H, **options) for _ in "ab"]
        for head, part in zip(apart, (y < 2, y < 3), strict=True):
            head.observe(z[part], y[part])
        assert_alike(apart[0].merge(apart[1]), union)


@every_option
def test_what_is_forgotten_was_never_seen(name: str, options: dict[str, Any]) -> None:
    z, y = rows()
    some = torch.arange(len(y)) % 3 == 0
    head, rest = learned(name, options, (z, y)), learned(name, options, (z[~some], y[~some]))
    head(z[:5])
    head.forget(z[some], y[some])
    assert_alike(head, rest)
    before = snapshot(head)
    with pytest.raises(DataError, match="cannot forget"):
        head.forget(z, y)
    assert_same_bits(snapshot(head), before)
    if head.abilities.forgets_class:
        head.forget_class(1)
        stays = ~some & (y != 1)
        assert_alike(head, learned(name, options, (z[stays], y[stays])))


@every_option
def test_a_file_goes_on_as_the_head(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    z, y = rows()
    head = learned(name, options, (z, y))
    head.save(tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.settings == head.settings
    assert torch.equal(loaded(z), head(z))
    for one in (head, loaded):
        one.observe(z[:7] + 1, y[:7] + 1)
    assert_same_bits(snapshot(loaded), snapshot(head))
    assert torch.equal(loaded(z), head(z))


@every_option
def test_a_change_that_fails_is_undone(name: str, options: dict[str, Any]) -> None:
    z, y = rows()
    head = learned(name, options, (z, y))
    bits, answers = snapshot(head), head(z[:5])
    for change in (
        lambda: head.observe(z.repeat(3, 1), y.repeat(3) + 2),
        lambda: head.forget(z[:7], y[:7]),
    ):
        for at in (3, 12, 30):
            with pytest.raises(MemoryError), Fault(at, MemoryError()):
                change()
            assert_same_bits(snapshot(head), bits)
            assert torch.equal(head(z[:5]), answers)


@every_option
def test_a_row_left_out_is_answered_as_by_a_head_without_it(
    name: str, options: dict[str, Any]
) -> None:
    """But for the penalty, bandwidth and shrinkage, which stay those of all rows."""
    z, y = rows()
    fixed = options | ({"penalty": 0.1} if "ridge" in name else {"shrinkage": 0.1})
    fixed |= {"bandwidth": 2.0} if name == "kernel_ridge" else {}
    head = learned(name, fixed, (z, y))
    if not head.abilities.leaves_out:
        return
    found = head.leave_one_out(z, y)
    for row in (0, 50, len(y) - 1):
        others = ~((z == z[row]).all(dim=1) & (y == y[row]))  # copies are left out with it
        without = learned(name, fixed, (z[others], y[others]))
        label = without(z[row : row + 1])[0].argmax()
        assert int(found[row].argmax()) == int(label)


@every_option
def test_an_exported_graph_answers_alike(name: str, options: dict[str, Any]) -> None:
    z, y = rows()
    head = learned(name, options, (z, y))
    label, _, novelty = head.as_module(dtype=torch.float64)(z)
    assert torch.equal(label, head.predict(z))
    torch.testing.assert_close(novelty.double(), head.novelty(z), rtol=1e-5, atol=1e-6)
