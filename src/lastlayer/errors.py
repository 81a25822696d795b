"""Our errors: each is also the standard error that it refines."""


class LastLayerError(Exception):
    """Every error that lastlayer raises on purpose."""


class ShapeError(LastLayerError, ValueError):
    """An array or tensor has the wrong shape or length."""


class ArgumentError(LastLayerError, TypeError):
    """An argument of the wrong type; the message says what was expected."""


class DataError(LastLayerError, ValueError):
    """Values that cannot be learned from: NaN, infinite, empty, or out of range."""


class ImpossibleError(DataError):
    """Samples to forget that cannot have been observed; ``c`` is the class to blame, if one is."""

    def __init__(self, reason: str, c: int | None = None) -> None:
        self.reason, self.c = reason, c
        of = "" if c is None else f" of class {c}"
        super().__init__(f"cannot forget these samples{of}: {reason}")


class UnlearnedRowsError(DataError):
    """Rows to forget that a head has not learned; ``found`` says which, ``told`` what to do."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(self.told("skip_not_learned=True", "again=True"))

    def told(self, skip: str, again: str) -> str:
        """Return the message with what the two ways out are called."""
        return (
            f"{self.found}: {skip} leaves them out and forgets the others; {again} is for rows "
            "that the head has learned copies of, otherwise it forgets what it never learned; "
            "nothing was changed"
        )


class LabelError(LastLayerError, ValueError):
    """Labels that are not whole numbers from 0 upwards."""


class OptionError(LastLayerError, ValueError):
    """An option has a value it cannot have, or does not go with the others."""


class UnknownNameError(LastLayerError, KeyError, ValueError):
    """An unknown name: a failed lookup and a wrong value at once."""

    def __str__(self) -> str:
        """Return the plain message; KeyError would put it in quotes."""
        return str(self.args[0])


class NotLearnedError(LastLayerError, RuntimeError):
    """A head was asked to predict before it had learned anything."""


class NotCalibratedError(LastLayerError, RuntimeError):
    """A head was asked for what only calibration gives, and has none, or has changed since."""


class StateError(LastLayerError, RuntimeError):
    """A state that does not belong to such a head: parts are missing, or of another shape."""


class OtherFeaturesWarning(UserWarning):
    """Rows do not look like the features that a head has learned: another model's, it seems."""


class CalibrationWarning(UserWarning):
    """A calibration is out of date, or could not use all the rows that it was given."""


class DrawnTestWarning(UserWarning):
    """A table had no split, so that some of its rows were drawn as test rows."""


class MergeError(LastLayerError, ValueError):
    """Two heads that cannot be merged."""


class UnsupportedError(LastLayerError, TypeError):
    """A head, as it was made, cannot do this exactly; the message names what can."""


class DivergedError(LastLayerError, ArithmeticError):
    """Training diverged: NaN or infinity appeared; the message names the step."""


class FileFormatError(LastLayerError, ValueError):
    """A file that is not what it should be: truncated, altered, or of another kind."""


class MissingFileError(LastLayerError, FileNotFoundError):
    """A file that is needed is missing; the message says how to make it."""


class ReadError(LastLayerError, OSError):
    """A file that exists but cannot be read: no permission, or a failing disk."""


class WriteError(LastLayerError, OSError):
    """A file that cannot be written; what was there before is unchanged."""


class BusyError(LastLayerError, OSError):
    """Another process is at work on the same files."""


class UnavailableError(LastLayerError, RuntimeError):
    """A live head cannot do this now: its store is read-only, or too much is waiting."""


class TakenError(LastLayerError, ValueError):
    """The name of a request, or the id of an input, that stands for something else already."""


class NotWaitingError(LastLayerError, LookupError):
    """No input waits for a label under this id."""


class MissingPackageError(LastLayerError, ImportError):
    """A package from an extra is not installed; the message names the extra."""


class PlanError(LastLayerError, ValueError):
    """A plan with a mistake in it; the message names the place."""
