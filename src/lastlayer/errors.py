"""Our errors: each is also the standard error that it refines."""


class LastLayerError(Exception):
    """Every error that lastlayer raises on purpose."""


class ShapeError(LastLayerError, ValueError):
    """An array or tensor has the wrong shape or length."""


class ArgumentError(LastLayerError, TypeError):
    """An argument of the wrong type; the message says what was expected."""


class DataError(LastLayerError, ValueError):
    """Values that cannot be learned from: NaN, infinite, empty, or out of range."""


class LabelError(LastLayerError, ValueError):
    """Labels that are not whole numbers from 0 upwards."""


class OptionError(LastLayerError, ValueError):
    """An option has a value it cannot have, or does not go with the others."""


class UnknownNameError(LastLayerError, KeyError, ValueError):
    """A name that no catalogue holds: a failed look-up and a wrong value at once."""

    def __str__(self) -> str:
        """Give the plain message; KeyError would put it in quotes."""
        return str(self.args[0])


class NotLearnedError(LastLayerError, RuntimeError):
    """A head was asked to predict before it has learned anything."""


class NotCalibratedError(LastLayerError, RuntimeError):
    """A head was asked for what only calibration gives, and has none, or has changed since."""


class StateError(LastLayerError, RuntimeError):
    """A state that is none of such a head: parts are missing, or of another shape."""


class MergeError(LastLayerError, ValueError):
    """Two heads that cannot become one."""


class UnsupportedError(LastLayerError, TypeError):
    """A head, as it was made, cannot do this exactly; the message names what can."""


class DivergedError(LastLayerError, ArithmeticError):
    """Training left the finite numbers; the message names the step."""


class FileFormatError(LastLayerError, ValueError):
    """A file that is not what it should be: truncated, altered, or of another kind."""


class MissingFileError(LastLayerError, FileNotFoundError):
    """A file that is needed is not there; the message says how it is made."""


class ReadError(LastLayerError, OSError):
    """A file that is there but cannot be read: no permission, or a disk that fails."""


class WriteError(LastLayerError, OSError):
    """A file that cannot be written; what was there before is still there."""


class BusyError(LastLayerError, OSError):
    """Another process is at work on the same files."""


class MissingPackageError(LastLayerError, ImportError):
    """A package that only an extra brings is not installed; the message names the extra."""


class PlanError(LastLayerError, ValueError):
    """A plan that says what cannot be; the message names the place in it."""
