"""The errors of the package. Each says whose fault it is and what to do next.

LoaderError
├── ConfigError (ValueError)            a wrong argument; raised before anything starts
├── TableError                          no such table or version; unsupported table feature, named
├── ReadError (OSError)                 a file missing, corrupt, vacuumed, refused; names file, chunk, version
├── ScratchError (OSError)              no room for shuffle="full", or no writing; what to free
├── ValueTypeError (TypeError)          a column that the requested output cannot hold
├── ContractError (ValueError)          user code broke its contract: row counts, types, shapes; both sides named
├── BudgetError (MemoryError)           does not fit memory_budget; what to change
├── WorkerDied                          exit code or signal, and what it was doing
├── LoaderTimeout (TimeoutError)        which stage, which chunk
├── StageError                          an error of user code that cannot cross processes; carries its text
├── StateError (ValueError)             load_state_dict does not fit
└── IncompleteEpochError                planned and gathered rows differ

An error raised by user code keeps its own type and gains notes: stage, file, rows.
"""


class LoaderError(Exception):
    """Base of every error that this package raises itself."""


class ConfigError(LoaderError, ValueError):
    """A wrong argument, found before anything was started."""


class TableError(LoaderError):
    """No such table or version, or a table feature that is not supported; named in the text."""


class ReadError(LoaderError, OSError):
    """A file could not be read: missing, corrupt or refused. The text names file and version."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ScratchError(LoaderError, OSError):
    """The scratch file of a full shuffle has no room, or cannot be written; the text names folder and bytes."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ValueTypeError(LoaderError, TypeError):
    """A column holds values that the requested output cannot hold; the text names the column and the remedy."""


class ContractError(LoaderError, ValueError):
    """User code broke its contract (row counts, types, shapes); the text names both sides."""


class BudgetError(LoaderError, MemoryError):
    """Something does not fit into `memory_budget`; the text says what to change."""


class WorkerDied(LoaderError):
    """A worker process ended while it worked; the text names exit code or signal, and the work."""


class LoaderTimeout(LoaderError, TimeoutError):
    """User code took longer than `timeout`; the text names the stage and the chunk."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StageError(LoaderError):
    """An error of user code that cannot cross processes; carries its type's name and its text."""


class StateError(LoaderError, ValueError):
    """A state does not fit the loader that it is loaded into; the text names what differs."""


class IncompleteEpochError(LoaderError):
    """The rows gathered in an epoch are not the rows planned for it."""
