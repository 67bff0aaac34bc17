"""Where a command is on this machine. Pure: the system is asked through a function.

On Windows `npx` is `npx.cmd`: the endings that count as programs are tried, as its shell does."""

from collections.abc import Callable, Iterable


def places(
    command: str, folders: Iterable[str], endings: tuple[str, ...], separators: str
) -> Iterable[str]:
    """Where it could be, in the order in which the system looks."""
    named = any(command.lower().endswith(ending) for ending in endings if ending)
    names = [command] if named or not endings else [command + ending for ending in endings]
    if any(mark in command for mark in separators):
        return names  # a path: it is there or nowhere
    return [f"{folder}{separators[0]}{name}" for folder in folders if folder for name in names]


def resolve(  # noqa: PLR0913 - as much as systems differ in
    command: str,
    path: str,
    *,
    is_program: Callable[[str], bool],
    path_separator: str = ":",
    separators: str = "/",
    endings: str = "",
) -> str | None:
    """The program that a command means, or None. `endings` is PATHEXT where the system has it."""
    known = tuple(ending.lower() for ending in endings.split(";") if ending) if endings else ()
    wanted = places(command, path.split(path_separator), known, separators)
    return next((place for place in wanted if is_program(place)), None)
