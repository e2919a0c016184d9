"""The one error tree of tiebreak.

Every error says three things: what was wrong with which value, which limit it
broke, and what to do about it.  The module imports the standard library only,
so that ``spec``, ``impl`` and ``sim`` can all raise from the same tree without
importing one another.
"""

from __future__ import annotations


class TiebreakError(Exception):
    """Root of every error that tiebreak raises on purpose.

    Args:
        what: The thing that is wrong, as a short noun phrase ("k", "rank 2").
        value: The offending value; shown with ``repr``.
        limit: The rule that the value broke.
        remedy: What the caller can do about it.
    """

    def __init__(self, what: str, *, value: object = None, limit: str = "", remedy: str = "") -> None:
        self.what = what
        self.value = value
        self.limit = limit
        self.remedy = remedy
        text = what if value is None else f"{what} is {value!r}"
        super().__init__("; ".join(part for part in (text, limit, remedy) if part))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between processes, and constructors of subclasses have keywords that ``args`` lacks.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[TiebreakError], arguments: tuple[object, ...], attributes: dict[str, object]) -> TiebreakError:
    """Make an error of its pickled parts, without its constructor."""
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InputError(TiebreakError, ValueError):
    """Raised when an argument has a wrong value, shape, dtype, stride or device."""


class PtxSyntaxError(InputError):
    """Raised when text is not PTX; names the file, the line and what stands there."""


class LitmusSyntaxError(InputError):
    """Raised when text is not a litmus program; names the file, the line and what stands there."""


class UnsupportedOperationError(TiebreakError):
    """Raised when a program does something that a model or a machine does not define; never answered by a guess.

    Attributes:
        operation: What it does, as a short noun phrase.
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(f"UNSUPPORTED({operation})", remedy="check it without that operation")


class MissingBackendError(TiebreakError):
    """Raised when a backend, package or device that was asked for is not there."""


class KernelFileError(TiebreakError):
    """Raised when a file of a compiled kernel is damaged or belongs to another kernel."""


class DriverError(TiebreakError):
    """Raised when a call of the CUDA driver failed.

    Attributes:
        name: Name of the CUDA error, such as ``CUDA_ERROR_INVALID_VALUE``.
    """

    def __init__(self, what: str, *, name: str, **details: str) -> None:
        self.name = name
        super().__init__(what, **details)


class GeometryError(TiebreakError):
    """Raised on every rank when the ranks disagree on a workspace's geometry."""


class WorkspaceError(TiebreakError):
    """Raised when a workspace is used after it was closed or after it failed."""


class PeerError(TiebreakError):
    """Raised when an exchange ended in its error state because of a peer.

    Attributes:
        peer: Rank that the wait was for.
        epoch: Exchange number that the wait was for.
        flag: Name of the flag that was polled.
    """

    def __init__(self, what: str, *, peer: int, epoch: int, flag: str, **details: str) -> None:
        self.peer = peer
        self.epoch = epoch
        self.flag = flag
        super().__init__(what, **details)


class PeerTimeoutError(PeerError):
    """Raised when a bounded wait for a peer's flag ran out of polls."""


class RowMismatchError(PeerError):
    """Raised when a peer took part in an exchange with another number of rows."""


class PeerLostError(TiebreakError):
    """Raised when the hosts were to agree on something and one of them was gone."""


class WorkerError(TiebreakError):
    """Raised when a worker process of a backend failed, died, or did not answer in time."""


class SimulationError(TiebreakError):
    """Raised when a simulated program that had to be clean broke a property."""


class ReplayError(SimulationError):
    """Raised when a recorded schedule does not fit the program it is replayed on."""
