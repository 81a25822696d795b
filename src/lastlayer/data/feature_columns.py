"""The columns of features: their number, their names, and the order in which they were learned."""

# ruff: noqa: N803  (scikit-learn calls the features X)

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import short
from lastlayer.core.names import listed
from lastlayer.errors import DataError, ShapeError

Z = TypeVar("Z", Tensor, np.ndarray[Any, Any])


def column_names(width: int, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns as they are kept; () where they have none."""
    texts = not isinstance(names, str) and all(isinstance(name, str) for name in names)
    if len(names) and (len(names) != width or not texts):
        raise ShapeError(f"columns must have {width} names, got {short(names)}")
    return tuple(names)


def learned_columns(width: int, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the attributes by which scikit-learn knows the columns that were learned."""
    found: dict[str, Any] = {"n_features_in_": width}
    if column_names(width, names):
        found["feature_names_in_"] = np.array(names, dtype=object)
    return found


def check_width(width: int, learned: int, columns: Sequence[str] = ()) -> None:
    """Refuse features that have not as many columns as were learned, and name those missing."""
    if width == learned:
        return
    missing = _missing(columns, learned) if len(columns) > 1 else []
    are = "is" if len(missing) == 1 else "are"
    hint = f": {listed(missing)} {are} missing" if missing else ""
    if len(columns) > 1 and not missing:
        hint = f": columns {columns[0]} to {columns[-1]}"
    raise ShapeError(
        f"features must have {learned} columns, as the head has learned, got {width}{hint}"
    )


LEARNED = "must be those that the head has learned"


def columns_in_order(z: Z, columns: Sequence[str], wanted: Sequence[str], rule: str = LEARNED) -> Z:
    """Return features with their columns in an order given by name; refuse other columns.

    Names may be missing on either side. A single name is that of a column of vectors, and says
    nothing of their order. The message says by which rule columns are refused.
    """
    if min(len(wanted), len(columns)) < 2 or list(columns) == list(wanted):
        return z
    if unlike := unlike_columns(columns, wanted):
        raise DataError(f"columns {rule}: {unlike}")
    place = {name: at for at, name in enumerate(columns)}
    return z[:, [place[name] for name in wanted]]


def unlike_columns(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """Return how columns differ from those that are wanted, in any order; "": not at all."""
    there, known = set(columns), set(wanted)
    if there == known and len(there) == len(columns) == len(wanted):
        return ""
    missing = [f"'{name}' is missing" for name in wanted if name not in there]
    new = [f"'{name}' was not among them" for name in columns if name not in known]
    found = [*missing[:3], *new[:3]] or ["some occur twice"]
    more = ", …" if len(missing) > 3 or len(new) > 3 else ""
    return f"{', '.join(found)}{more}"


def joint_columns(own: Sequence[str], theirs: Sequence[str]) -> tuple[Sequence[str], Tensor | None]:
    """Return the columns of two classifiers together: their names, in the order of the first.

    The tensor (h,) says which column of the second each one is; None: the same, or unknown.
    """
    if not own or not theirs or list(own) == list(theirs):
        return own or theirs, None
    rule = "must be the same in both to be merged"
    return own, columns_in_order(torch.arange(len(theirs))[None], theirs, own, rule)[0]


def frame_in_learned_order(X: Any, learned: Sequence[str]) -> Any:
    """Return a frame whose columns are the learned ones, in whatever order, in theirs.

    Anything else is given back: scikit-learn refuses other names in its own words.
    """
    names = getattr(X, "columns", None)
    if not len(learned) or names is None or not hasattr(X, "__getitem__"):
        return X
    there, wanted = list(names), list(learned)
    # The columns of a pyarrow table are arrays, not names.
    if there == wanted or not all(isinstance(name, str) for name in there):
        return X
    return X[wanted] if Counter(there) == Counter(wanted) == Counter(set(wanted)) else X


def _missing(names: Sequence[str], n: int) -> list[str]:
    """Return which of ``n`` numbered columns are not there, where their numbers tell.

    >>> _missing(["z_0", "z_1", "z_3"], 4), _missing(["z1", "z3"], 3), _missing(["z1", "z2"], 3)
    (['z_2'], ['z2'], [])
    >>> _missing(["z01", "z03"], 3), _missing([f"z{k}" for k in range(3, 13)], 12)
    (['z02'], ['z1', 'z2'])
    """
    prefix = names[0].rstrip("0123456789")
    tails = [name.removeprefix(prefix) for name in names]
    if not all(tail.isdecimal() for tail in tails):
        return []
    padded = any(tail.startswith("0") and len(tail) > 1 for tail in tails)
    numbers, digits = {int(tail) for tail in tails}, len(tails[0]) if padded else 1
    first = 0 if 0 in numbers else 1
    # Without the first or the last of them it is not known where they begin or end.
    if max(numbers) > n - 1 + first or (first and n not in numbers):
        return []
    lacking = sorted(set(range(first, n + first)) - numbers)
    return [f"{prefix}{number:0{digits}}" for number in lacking]
