"""How much memory statistics may take: more is refused before it is allocated."""

from lastlayer.arguments import whole
from lastlayer.errors import OptionError

BUDGET = 2 << 30  # bytes, unless a head is made with another


def check_budget(what: str, needed: int, budget: int, remedy: str) -> None:
    """Refuse statistics that take more than the budget, and say what would help.

    >>> check_budget("width 10", 800, BUDGET, "choose a smaller width")
    """
    whole(budget, "a budget in bytes", least=1)
    if needed > budget:
        raise OptionError(
            f"expected statistics of at most {_size(budget)}, got {_size(needed)} for {what}: "
            f"{remedy}, or make the head with budget={needed} if you have that much memory"
        )


def _size(n: int) -> str:
    mega, giga = n / 2**20, n / 2**30
    return f"{giga:.1f} GiB" if giga >= 1 else f"{mega:.1f} MiB"
