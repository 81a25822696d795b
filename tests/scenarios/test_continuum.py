"""Things in the form of a Continuum scenario; tests_images has tests with the library itself."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lastlayer.errors import LabelError, OptionError, UnsupportedError
from lastlayer.scenarios import from_continuum


class Form:
    """Data, classes and tasks, as Continuum's scenarios have them."""

    def __init__(self, x: Any, y: Any, t: Any, n_tasks: int) -> None:
        self.dataset = (np.asarray(x), np.asarray(y), np.asarray(t))
        self.n_tasks = n_tasks

    def __len__(self) -> int:
        return self.n_tasks


def whole(n_tasks: int) -> Form:
    return Form(np.zeros((6, 3)), [0, 1, 2, 0, 1, 2], np.arange(6) % n_tasks, n_tasks)


def test_rows_are_places_in_the_data() -> None:
    scenario = from_continuum(whole(3), whole(3), label="class")
    assert [rows.tolist() for rows in scenario.tasks] == [[0, 3], [1, 4], [2, 5]]
    assert scenario.test_tasks is not None
    assert [rows.tolist() for rows in scenario.test_tasks] == [[0, 3], [1, 4], [2, 5]]
    assert (scenario.label, scenario.n_classes, scenario.order) == ("class", 3, (0, 1, 2))


def test_row_numbers_as_data_are_the_rows() -> None:
    moved = Form([5, 3, 4, 0, 1, 2], [0] * 6, [0.0, 0, 0, 1, 1, 1], 2)
    assert [rows.tolist() for rows in from_continuum(moved, moved).tasks] == [[5, 3, 4], [0, 1, 2]]


def test_one_test_task_belongs_to_no_training_task() -> None:
    assert from_continuum(whole(3), whole(1)).test_tasks is None
    assert from_continuum(whole(1), whole(1)).test_tasks is not None
    with pytest.raises(OptionError, match="must have 3 tasks as train, or one, got 2"):
        from_continuum(whole(3), whole(2))


def test_what_has_no_rows_of_its_own() -> None:
    rotated = whole(2)
    rotated.inc_trsf = []  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedError, match="transforms the same data: extract"):
        from_continuum(rotated, whole(2))
    segments = Form(np.zeros(6), [0] * 6, np.zeros((6, 2)), 2)
    with pytest.raises(UnsupportedError, match=r"task labels of shape \(6, 2\)"):
        from_continuum(segments, whole(2))


@pytest.mark.parametrize("y", [[0, 1, -1, 0, 1, 2], [0.5] * 6])
def test_classes_are_numbers_from_zero(y: list[float]) -> None:
    with pytest.raises(LabelError, match="whole numbers of at least 0"):
        from_continuum(Form(np.zeros(6), y, [0] * 6, 1), whole(1))


def test_data_sets_one_after_another() -> None:
    class Fellowship(list):  # type: ignore[type-arg]
        pass

    class Part(SimpleNamespace):
        __hash__ = object.__hash__

        def __len__(self) -> int:
            return len(self._y)

    parts = Fellowship([Part(_y=np.array([0, 1])), Part(_y=np.array([2, 3, 2]))])
    assert [rows.tolist() for rows in from_continuum(parts, parts).tasks] == [[0, 1], [2, 3, 4]]
