"""The battery: what every head does under both presets, whatever it is inside."""

import copy
from pathlib import Path

import pytest
import torch
from streams import (
    H,
    accuracy,
    assert_same_bits,
    batches,
    blobs,
    every_exact_head,
    every_head,
    make_head,
    snapshot,
    trained,
)

from lastlayer import heads, load_features
from lastlayer.catalogue.head_cards import PAPER_HEADS, card_of
from lastlayer.errors import (
    CalibrationWarning,
    DataError,
    LabelError,
    NotCalibratedError,
    UnsupportedError,
)
from lastlayer.heads import load_head


def test_there_are_nineteen_heads() -> None:
    assert len(PAPER_HEADS) == len(set(PAPER_HEADS)) == 19


@every_head
def test_separable_blobs_are_learned(name: str, preset: str) -> None:
    assert accuracy(trained(name, preset), *blobs(seed=1)) >= 0.95


@every_head
def test_predict_is_the_argmax_of_the_logits(name: str, preset: str) -> None:
    z, _ = blobs(seed=1)
    head = trained(name, preset, n_classes=5)
    logits = head(z)
    assert logits.shape == (len(z), 5)
    assert logits.is_floating_point()
    assert not logits.isnan().any()
    assert torch.equal(head.predict(z), logits.argmax(dim=1))


@every_head
def test_classes_may_arrive_undeclared(name: str, preset: str) -> None:
    z, y = blobs()
    head = make_head(name, H, preset=preset)
    for c in range(3):
        assert head.n_classes == c
        head.observe(z[y == c], y[y == c])
        assert head(z).shape == (len(z), c + 1)
        assert head.seen.tolist() == [True] * (c + 1)


@every_exact_head
def test_declaring_classes_changes_nothing(name: str) -> None:
    z, _ = blobs(seed=1)
    declared, undeclared = trained(name, "exact", n_classes=5), trained(name, "exact")
    torch.testing.assert_close(declared(z)[:, :3], undeclared(z), rtol=1e-5, atol=1e-5)


@every_exact_head
def test_unseen_classes_never_win(name: str) -> None:
    z, y = blobs(n_classes=2)
    head = make_head(name, H, n_classes=6)
    head.observe(z, 2 * y + 1)
    logits = head(z)
    assert (logits[:, [0, 2, 4, 5]] == -torch.inf).all()
    assert not logits[:, [1, 3]].isnan().any()
    assert set(head.predict(z).tolist()) <= {1, 3}


@every_head
def test_a_saved_head_goes_on_as_before(name: str, preset: str, tmp_path: Path) -> None:
    z, y = blobs(seed=1, n_classes=4)
    head = trained(name, preset, n_classes=5)
    head.save(tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors")
    assert loaded.name == head.name
    assert loaded.settings == head.settings
    for observed in ((z, y), (z[:7], y[:7] + 3)):
        assert_same_bits(snapshot(loaded), snapshot(head))
        assert torch.equal(loaded(z), head(z))
        head.observe(*observed)
        loaded.observe(*observed)
    assert_same_bits(snapshot(loaded), snapshot(head))


@every_head
@pytest.mark.parametrize("used", [False, True])
def test_a_state_dict_makes_any_such_head_the_same(name: str, preset: str, used: bool) -> None:
    z, y = blobs(seed=1)
    head, other = trained(name, preset), make_head(name, H, preset=preset)
    if used:
        other.observe(-z, y + 2)
        other(z)
    other.load_state_dict(snapshot(head))
    assert torch.equal(other(z), head(z))
    for one in (head, other):
        one.observe(z, y)
    assert_same_bits(snapshot(other), snapshot(head))
    assert torch.equal(other(z), head(z))


@every_head
def test_a_state_of_other_features_is_refused(name: str, preset: str) -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch|must have|expected"):
        make_head(name, H + 1, preset=preset).load_state_dict(trained(name, preset).state_dict())


@every_head
def test_inputs_are_unchanged(name: str, preset: str) -> None:
    for dtype in (torch.float32, torch.float64):
        z, y = blobs()
        z = z.to(dtype)
        before = z.clone(), y.clone()
        head = make_head(name, H, preset=preset)
        head.observe(z, y)
        head(z)
        head.observe(z, y)
        assert torch.equal(z, before[0])
        assert torch.equal(y, before[1])


@every_head
def test_what_was_handed_over_may_be_reused(name: str, preset: str) -> None:
    z, y = blobs()
    head, other = (make_head(name, H, preset=preset) for _ in range(2))
    head.observe(z, y)
    mine = z.clone(), y.clone()
    other.observe(*mine)
    for tensor in mine:
        tensor.zero_()
    assert torch.equal(other(z), head(z))


@every_head
def test_equal_seeds_give_equal_bits(name: str, preset: str) -> None:
    z, y = blobs()
    one, other = (make_head(name, H, preset=preset) for _ in range(2))
    for seed, head in enumerate((one, other)):
        torch.manual_seed(seed)  # the global generator has no say
        for batch in batches(z, y, size=15):
            head.observe(*batch)
    assert_same_bits(snapshot(other), snapshot(one))
    assert torch.equal(other(z), one(z))


@every_head
def test_any_float_is_taken(name: str, preset: str) -> None:
    z, y = blobs()
    z = z.half()  # then every type holds the same numbers
    logits = []
    for dtype in (torch.float16, torch.float32, torch.float64):
        head = make_head(name, H, preset=preset)
        head.observe(z.to(dtype), y)
        logits.append(head(z.to(dtype)).double())
    for other in logits[1:]:
        torch.testing.assert_close(other, logits[0], rtol=1e-5, atol=1e-5)


@every_head
def test_any_integer_is_a_label(name: str, preset: str) -> None:
    z, y = blobs()
    expected = make_head(name, H, preset=preset)
    expected.observe(z, y)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        head = make_head(name, H, preset=preset)
        head.observe(z, y.to(dtype))
        assert_same_bits(snapshot(head), snapshot(expected))


@every_head
def test_an_empty_batch_is_harmless(name: str, preset: str) -> None:
    empty = torch.zeros(0, H), torch.zeros(0, dtype=torch.int64)
    fresh, head = make_head(name, H, preset=preset), trained(name, preset)
    for one in (fresh, head):
        before = snapshot(one)
        one.observe(*empty)
        assert_same_bits(snapshot(one), before)
    assert head(empty[0]).shape == (0, 3)
    assert head.predict(empty[0]).shape == (0,)


@every_head
def test_copies_are_alike_and_apart(name: str, preset: str) -> None:
    z, y = blobs(seed=1)
    head = trained(name, preset)
    twin = copy.deepcopy(head)
    before = head(z)
    assert torch.equal(twin(z), before)
    twin.observe(z, y)
    assert torch.equal(head(z), before)
    head.observe(z, y)
    assert_same_bits(snapshot(twin), snapshot(head))


@every_head
def test_a_head_can_be_moved(name: str, preset: str) -> None:
    z, y = blobs(seed=1)
    head = trained(name, preset).to("cpu").to(torch.float64)
    assert all(
        t.dtype == torch.float64 for t in head.state_dict().values() if t.is_floating_point()
    )
    head.observe(z, y)
    assert accuracy(head, z, y) >= 0.95


@every_head
def test_a_merge_equals_the_union_or_raises(name: str, preset: str) -> None:
    z, y = blobs(n_classes=4)
    union, left, right = (make_head(name, H, preset=preset) for _ in range(3))
    union.observe(z, y)
    left.observe(z[y != 2], y[y != 2])
    right.observe(z[y == 2], y[y == 2])
    before = snapshot(left), snapshot(right)
    if left.abilities.merges:
        merged = left.merge(right)
        torch.testing.assert_close(merged(z), union(z), rtol=1e-9, atol=1e-9)
        merged.observe(z, y)
    else:
        with pytest.raises(UnsupportedError, match=r"cannot be merged exactly.*these heads can: "):
            left.merge(right)
    assert_same_bits(snapshot(left), before[0])
    assert_same_bits(snapshot(right), before[1])


@every_head
def test_forgetting_is_as_if_never_seen_or_raises(name: str, preset: str) -> None:
    z, y = blobs(n_classes=4)
    some = torch.arange(len(y)) % 3 == 0
    head, rest = (make_head(name, H, preset=preset) for _ in range(2))
    head.observe(z, y)
    rest.observe(z[~some], y[~some])
    before = snapshot(head)
    if head.abilities.forgets:
        head.forget(z[some], y[some])
        torch.testing.assert_close(head(z), rest(z), rtol=1e-9, atol=1e-9)
        with pytest.raises(DataError, match="cannot forget"):
            head.forget(z, y)
    else:
        with pytest.raises(UnsupportedError, match=r"cannot forget samples.*these heads can: "):
            head.forget(z[some], y[some])
        assert_same_bits(snapshot(head), before)


@every_head
@pytest.mark.parametrize("gone", [0, 3])
def test_forgetting_a_class_is_as_if_never_seen_or_raises(
    name: str, preset: str, gone: int
) -> None:
    z, y = blobs(n_classes=4)
    head, rest = (make_head(name, H, n_classes=4, preset=preset) for _ in range(2))
    head.observe(z, y)
    rest.observe(z[y != gone], y[y != gone])
    before = snapshot(head)
    if head.abilities.forgets_class:
        head.forget_class(gone)
        assert head.seen.tolist() == [c != gone for c in range(4)]
        torch.testing.assert_close(head(z), rest(z), rtol=1e-9, atol=1e-9)
    else:
        with pytest.raises(UnsupportedError, match=r"cannot forget a class.*these heads can: "):
            head.forget_class(gone)
        assert_same_bits(snapshot(head), before)


@every_exact_head
def test_the_card_says_what_the_head_can_do(name: str) -> None:
    head = make_head(name, H)
    assert card_of(name).abilities == head.abilities
    assert head.name == card_of(name).name


@every_exact_head
def test_the_card_says_how_large_the_state_is(name: str) -> None:
    z, y = blobs(n_per_class=50)
    head = heads.make_head(name, H)
    head.observe(z, y)
    state = sum(part.nbytes for part in head.state_dict().values())
    slack = 4 * head.n_classes + 16  # which classes were seen, a count of steps, a scale
    assert 0 <= state - card_of(name).size(H, head.n_classes, len(y)) <= slack


@every_exact_head
def test_beyond_the_paper_both_presets_are_the_same(name: str) -> None:
    z, _ = blobs(seed=1)
    exact, paper = (trained(name, preset, n_classes=5) for preset in ("exact", "paper"))
    if not card_of(name).in_paper:
        assert torch.equal(exact(z), paper(z))


@every_head
def test_order_and_batches_do_not_matter_or_it_does_not_say_so(name: str, preset: str) -> None:
    """Classes that overlap, and rows enough for a budget to drop some and for a map to be drawn.

    Which map that is the first rows decide: both heads have the same one.
    """
    z, y = blobs(n_per_class=400)
    z = z + 2 * torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    one, other = (make_head(name, H, n_classes=3, preset=preset) for _ in range(2))
    if one.rows_to_begin:
        one, other = (head.fresh(3, first=z) for head in (one, other))
        assert one.rows_to_begin == 0
    one.observe(z, y)
    for batch in batches(z.flip(0), y.flip(0), size=70):
        other.observe(*batch)
    difference = (other(z) - one(z)).nan_to_num(0, 0, 0).abs().max()
    assert bool(difference < 1e-9) == one.abilities.order_free


@every_head
def test_a_head_is_a_linear_layer_or_it_does_not_say_so(name: str, preset: str) -> None:
    """On random rows, and on real ones of ten classes, of which three were never seen."""
    data = load_features("cifar10")
    real = data.train.y[:800] < 7
    random = torch.randn(500, H, generator=torch.Generator().manual_seed(0))
    streams = (
        (*blobs(), torch.cat([5 * random, torch.zeros(1, H)]), 5),
        (data.train.z[:800][real].float(), data.train.y[:800][real], data.test.z[:800], 10),
    )
    for z, y, queries, n_classes in streams:
        head = make_head(name, z.shape[1], n_classes, preset=preset).double()
        head.observe(z, y)
        if head.abilities.linear:
            layer = head.as_linear(torch.float64)
            assert type(layer) is torch.nn.Linear
            found = layer(queries.double()).argmax(dim=1)
            assert torch.equal(found, head.predict(queries.double()))
        else:
            with pytest.raises(UnsupportedError, match="these heads can: "):
                head.as_linear()


@every_head
def test_rows_are_kept_or_it_does_not_say_so(name: str, preset: str) -> None:
    """Rows enough for a map, which keeps its first rows until it is drawn."""
    z, y = blobs(n_per_class=400)
    head = make_head(name, H, preset=preset)
    head.observe(z, y)
    own = {tuple(row) for row in z.tolist()}
    tables = [part for part in head.state_dict().values() if part.shape[1:] == (H,)]
    kept = any(tuple(row) in own for part in tables for row in part.float().tolist())
    assert kept == head.abilities.keeps_samples


@every_head
def test_batches_of_one_are_learned_from(name: str, preset: str) -> None:
    z, y = blobs(n_per_class=2)
    head = make_head(name, H, preset=preset)
    for one in batches(z, y, size=1):
        head.observe(*one)
    assert head(z).shape == (6, 3)
    assert not head(z).isnan().any()


@every_head
def test_features_may_come_from_inference_mode(name: str, preset: str) -> None:
    """Features are often computed there; learning goes on outside, and the other way round."""
    z, y = blobs()
    head, plain = (make_head(name, H, preset=preset) for _ in range(2))
    with torch.inference_mode():
        inside = z.clone()
        head.observe(inside[::2], y[::2])
        head(inside)
    plain.observe(z[::2], y[::2])
    plain(z)
    for one in (head, plain):
        one.observe(z[1::2], y[1::2])
    assert torch.equal(head(z), plain(z))


@every_head
def test_ids_are_not_taken_for_classes(name: str, preset: str) -> None:
    head = trained(name, preset)
    before = snapshot(head)
    with pytest.raises(LabelError, match="HeadClassifier"):
        head.observe(torch.zeros(1, H), torch.tensor([300_000_000]))
    assert_same_bits(snapshot(head), before)


@every_head
def test_novelty_is_one_number_for_each_input(name: str, preset: str) -> None:
    z, _ = blobs(seed=1)
    head = trained(name, preset, n_classes=5)
    novelty = head.novelty(z)
    assert novelty.shape == (len(z),)
    assert novelty.dtype == torch.float64
    assert novelty.isfinite().all()
    one_by_one = torch.cat([head.novelty(row) for row in z.split(1)])
    torch.testing.assert_close(one_by_one, novelty, rtol=1e-5, atol=1e-5)
    assert head.novelty(z[:0]).shape == (0,)


@every_head
def test_a_calibrated_head_goes_on_as_before_from_a_file(
    name: str, preset: str, tmp_path: Path
) -> None:
    z, y = blobs(seed=1)
    head = trained(name, preset, n_classes=5)
    logits, state = head(z), snapshot(head)
    head.calibrate(z, y)
    assert_same_bits(snapshot(head), state)
    assert torch.equal(head(z), logits)
    head.save(tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.calibration == head.calibration
    assert torch.equal(loaded.probabilities(z), head.probabilities(z))
    assert torch.equal(loaded.predict(z, unknown=0.1), head.predict(z, unknown=0.1))


@every_head
def test_calibrated_probabilities_order_the_classes_as_the_logits_do(
    name: str, preset: str
) -> None:
    z, y = blobs(seed=1)
    head = trained(name, preset, n_classes=5)
    plain = head.probabilities(z)
    head.calibrate(z, y)
    for found in (plain, head.probabilities(z)):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found.sum(dim=1), torch.ones(len(z), dtype=torch.float64))
        assert torch.equal(found.argmax(dim=1), head.predict(z))
        if preset == "exact":
            assert (found[:, 3:] == 0).all()


@every_head
def test_unknown_turns_away_the_strangest_and_no_others(name: str, preset: str) -> None:
    z, y = blobs(seed=1)
    head = trained(name, preset)
    head.calibrate(z, y)
    answers, novelty = head.predict(z, unknown=0.1), head.novelty(z)
    turned_away = answers == -1
    assert int(turned_away.sum()) <= 5  # ⌊61 · 0.1⌋ − 1: the sixth largest itself is let in
    assert torch.equal(answers[~turned_away], head.predict(z)[~turned_away])
    if turned_away.any():
        assert novelty[turned_away].min() > novelty[~turned_away].max()


@every_head
def test_what_changes_a_head_outdates_its_calibration(
    name: str, preset: str, tmp_path: Path
) -> None:
    z, y = blobs(seed=1)
    learned = blobs()
    changes = {
        "observe": lambda head: head.observe(z[:1], y[:1]),
        "forget": lambda head: head.forget(learned[0][:1], learned[1][:1]),
        "forget_class": lambda head: head.forget_class(0),
        "merge": lambda head: head.merge(trained(name, preset)),
        "load": lambda head: head.load_state_dict(trained(name, preset).state_dict()),
    }
    able = trained(name, preset).abilities
    if not able.forgets:
        del changes["forget"]
    if not able.forgets_class:
        del changes["forget_class"]
    if not able.merges:
        del changes["merge"]
    for change in changes.values():
        head = trained(name, preset)
        with pytest.raises(NotCalibratedError, match="is not calibrated: call calibrate"):
            head.predict(z, unknown=0.1)
        head.calibrate(z, y)
        head = change(head) if change is changes.get("merge") else (change(head), head)[1]
        head.save(tmp_path / "head")
        for one in (head, load_head(tmp_path / "head")):
            with pytest.raises(NotCalibratedError, match="has changed since"):
                one.predict(z, unknown=0.1)
            with pytest.warns(CalibrationWarning, match="may be too high or too low"):
                probable = one.probabilities(z)
            evidence = one._evidence(one(z)).double() / one.temperature
            assert torch.equal(probable, torch.softmax(evidence, dim=1))
            one.predict(z), one.novelty(z)
            one.calibration = None
            one.probabilities(z)
