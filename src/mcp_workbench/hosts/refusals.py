"""Why a file of a host is not changed."""

from mcp_workbench.core.errors import ConfigError, InvalidCall, Problem, WorkbenchError


class CannotEdit(ValueError):
    """The text is sound, but this edit can't be made in it; this is where, and why."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class HostFault(WorkbenchError):
    """Something about a host or its file keeps us from doing what was asked."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class HostUsage(InvalidCall):
    """The command line asks for something that can't be done to this host."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


_CORRECT = "correct the text there, or let the host write the file anew; nothing was changed"


def unreadable(
    file: str, message: str, line: int = 0, column: int = 0, *, fix: str = _CORRECT
) -> ConfigError:
    """The file is not what its host would read."""
    return ConfigError(file, (Problem("", message, fix, "WB-HOST-501", line, column),))


def is_folder(file: str) -> ConfigError:
    """Where a file was looked for, something else stands."""
    fix = "name a file, or move the folder out of the way; nothing was changed"
    return unreadable(file, "this is a folder", fix=fix)


_BY_HAND = "make the change by hand, or rewrite that place in the usual form"


def not_editable(file: str, error: CannotEdit, *, fix: str = _BY_HAND) -> ConfigError:
    problem = Problem("", error.message, fix, "WB-HOST-505", error.line, error.column)
    return ConfigError(file, (problem,))


def changed_since(file: str) -> HostFault:
    return HostFault(
        "file_changed",
        f"{file} has changed since it was previewed; it was left alone",
        hint="run the command again and look at the new preview",
    )
