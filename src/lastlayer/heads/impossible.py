"""The error of a head that is asked to forget samples it cannot have observed."""

from lastlayer.errors import DataError


class ImpossibleError(DataError):
    """Samples that cannot have been observed: ``reason``, and the class, where one is to blame."""

    def __init__(self, reason: str, c: int | None = None) -> None:
        self.reason, self.c = reason, c
        of = "" if c is None else f" of class {c}"
        super().__init__(f"cannot forget these samples{of}: {reason}")
