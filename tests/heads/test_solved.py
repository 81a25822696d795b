"""What a head has solved is in its file: loaded, it answers without solving, and only then."""

from pathlib import Path
from typing import Any

import pytest
import torch
from streams import blobs, make_head

from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import FileFormatError
from lastlayer.heads import Head, load_head
from lastlayer.heads.head_file import PREFIX

SOLVERS = ["slda", "ridge", "sampled_linear", "random_ridge", "random_slda"]
every_solver = pytest.mark.parametrize("name", SOLVERS)
CHANGED: dict[str, tuple[str, object]] = {  # an option that changes answers, not statistics
    "slda": ("shrinkage", 0.5), "ridge": ("penalty", 3.0), "sampled_linear": ("steps", 3),
    "random_ridge": ("penalty", 3.0), "random_slda": ("shrinkage", 0.5),
}  # fmt: skip
Z, Y = blobs(n_per_class=400)


def learned(name: str, rows: int = len(Y)) -> Head:
    head = make_head(name, Z.shape[1])
    head.observe(Z[:rows], Y[:rows])
    return head


def refuse_to_solve(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("it solves")

    monkeypatch.setattr(type(head.behind_map), "_refresh", fail)


@every_solver
def test_a_loaded_head_does_not_solve_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = learned(name)
    expected = head(Z)
    head.save(tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    refuse_to_solve(head, monkeypatch)
    assert torch.equal(loaded(Z), expected)
    assert torch.equal(loaded.probabilities(Z), head.probabilities(Z))
    if head.abilities.leaves_out:
        torch.testing.assert_close(loaded.leave_one_out(Z, Y), head.leave_one_out(Z, Y))
    torch.testing.assert_close(loaded.novelty(Z), head.novelty(Z))
    loaded.save(tmp_path / "again")
    assert torch.equal(load_head(tmp_path / "again")(Z), expected)
    loaded.observe(Z[:1], Y[:1])
    with pytest.raises(AssertionError, match="it solves"):
        loaded(Z)


@every_solver
def test_what_is_out_of_date_is_not_saved(name: str, tmp_path: Path) -> None:
    head = learned(name)
    head(Z)
    head.observe(Z[:50] + 1, Y[:50])
    head.save(tmp_path / "head")
    assert not [t for t in read_tensors(tmp_path / "head", "head")[0] if t.startswith(PREFIX)]
    assert torch.equal(load_head(tmp_path / "head")(Z), head(Z))
    few = learned(name, rows=20)  # too few for a map: what it answers by is thrown away
    expected = few(Z)
    few.save(tmp_path / "few")
    assert torch.equal(load_head(tmp_path / "few")(Z), expected)


@every_solver
@pytest.mark.parametrize("change", ["state", "settings", "version", "digest", "no digest"])
def test_what_was_solved_of_something_else_is_thrown_away(
    name: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, head = tmp_path / "head", learned(name)
    head(Z)
    head.save(path)
    state, document = read_tensors(path, "head")
    expected, ignored = head, document["may_be_ignored"]
    if change == "state":
        expected = learned(name, rows=len(Y) - 100)
        expected.save(tmp_path / "other")
        state |= read_tensors(tmp_path / "other", "head")[0]
    elif change == "settings":
        option, value = CHANGED[name]
        document["settings"][option] = value
        expected = make_head(name, Z.shape[1], **{option: value})
        expected.observe(Z, Y)
    elif change == "version":
        monkeypatch.setattr("lastlayer.heads.head_file.__version__", "9.9.9")
    elif change == "digest":
        ignored["solved"] = "0" * 64
    else:
        del ignored["solved"]
    write_tensors(path, "head", state, document)
    loaded = load_head(path)
    assert loaded.behind_map._stale
    assert torch.equal(loaded(Z), expected(Z))


@pytest.mark.parametrize(
    "tensor", [torch.zeros(3), torch.zeros(3, 4), torch.full((3, 4), torch.nan).double()]
)
def test_what_cannot_have_been_solved_is_refused(tensor: Any, tmp_path: Path) -> None:
    path, head = tmp_path / "head", learned("slda")
    head(Z)
    head.save(path)
    state, document = read_tensors(path, "head")
    write_tensors(path, "head", state | {"solved.weight": tensor}, document)
    with pytest.raises(FileFormatError, match="the solved weight must be"):
        load_head(path)
