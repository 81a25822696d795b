"""What the classes of a head are called: each has one name, by which heads are merged."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lastlayer.core.checks import kind_of
from lastlayer.core.names import class_name
from lastlayer.core.tensors import kind
from lastlayer.errors import ArgumentError, MergeError, OptionError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

Names = tuple[str, ...] | None  # of the classes 0, 1, …; None: they have none


def check_class_names(names: Sequence[str] | None) -> Names:
    """Return names as they are kept; refuse what is no list of different texts."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ArgumentError(f"class_names must be a list, got {kind(names)}")
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"a class name must be a str, got {kind_of(name)}")
    if len(set(names)) < len(names):
        raise OptionError("class_names must be different from one another")
    return tuple(names)


def joint_names(head: "Head", other: "Head") -> tuple[Names, list[int] | None]:
    """Return the class names of two heads together, and the number of each class of ``other``.

    Numbers are None where all stay: without names on both sides, or with the same ones.
    """
    own, theirs = head._class_names, other._class_names
    if own is None or theirs is None:
        return own or theirs, None
    if all(name == their for name, their in zip(own, theirs, strict=False)):
        return (own if len(own) >= len(theirs) else theirs), None
    for one, which in ((head, "first"), (other, "second")):
        if one.n_classes > (known := len(one._class_names or ())):
            raise MergeError(
                f"two heads that number their classes differently are merged by class names, but "
                f"class {known} of the {which} head has none: set class_names for all classes"
            )
    joint = tuple(dict.fromkeys((*own, *theirs)))
    number = {name: c for c, name in enumerate(joint)}
    return joint, [number[name] for name in theirs]


def called(head: "Head", c: int) -> str:
    """Return what to call a class of a head in a message."""
    names = head._class_names
    return f"'{class_name(names[c])}'" if names and c < len(names) else f"class {c}"
