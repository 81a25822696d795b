"""What made features: a backbone or a text model, its weights, and how its inputs were prepared."""

from collections.abc import Mapping
from typing import Any

from lastlayer.core.names import printable
from lastlayer.errors import DataError

# What is known of a maker, as text: its ``backbone``, a digest of its ``weights``, and the
# ``normalisation`` of its inputs. What is not known is missing.
Maker = Mapping[str, str]
KNOWN = ("backbone", "weights", "normalisation")
FOLDER = "st:FOLDER"  # a text model that has no name: its weights tell


def maker_of(said: Any) -> dict[str, str]:
    """Return a maker as a file or a user tells it: a name, or what is known of it.

    >>> maker_of("all-MiniLM-L6-v2"), maker_of({"weights": "7bec", "normalisation": "", "of": 1})
    ({'backbone': 'all-MiniLM-L6-v2'}, {'weights': '7bec'})
    """
    table = {"backbone": said} if isinstance(said, str) else said
    if not isinstance(table, Mapping):
        return {}
    found = {name: table.get(name) for name in KNOWN}
    texts = {name: printable(text) for name, text in found.items() if isinstance(text, str)}
    return {name: text for name, text in texts.items() if text not in ("", FOLDER)}


def are_others(one: Maker, other: Maker) -> bool:
    """Return whether two makers are known to differ: by their weights, else by their names.

    >>> are_others({"backbone": "a", "weights": "7bec"}, {"backbone": "b", "weights": "7bec"})
    False
    >>> are_others({"backbone": "a", "weights": "7bec"}, {"backbone": "b"}), are_others({}, {})
    (True, False)
    """
    named = "weights" if "weights" in one and "weights" in other else "backbone"
    return any(
        one[name] != other[name]
        for name in (named, "normalisation")
        if name in one and name in other
    )


def in_words(maker: Maker) -> str:
    """Return a maker in words.

    >>> in_words({"backbone": "resnet18", "weights": "7becafce496a", "normalisation": "trained"})
    'resnet18, weights 7becafce, normalisation trained'
    """
    parts = {"weights": maker.get("weights", "")[:8], "normalisation": maker.get("normalisation")}
    words = [maker.get("backbone"), *(f"{name} {text}" for name, text in parts.items() if text)]
    return ", ".join(word for word in words if word)


def refuse_others(maker: Maker, learned: Maker, what: str = "these features were") -> None:
    """Refuse features that another maker made than those that a head has learned."""
    if are_others(maker, learned):
        raise DataError(
            f"{what} made by {in_words(maker)}, and those that the head has learned by "
            f"{in_words(learned)}: if they are alike all the same, accept_features=True "
            "(--accept-features) takes them"
        )
