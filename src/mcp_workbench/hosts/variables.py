"""How each host writes a variable, and what that is here: `${NAME}` or `${NAME:-default}`."""

import os
import re
from collections.abc import Callable

import msgspec

from mcp_workbench.hosts.places import Surroundings
from mcp_workbench.hosts.table import Syntax

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OURS = rf"\$\{{{_NAME}(?::-[^}}]*)?\}}"
_SYNTAX: dict[Syntax, str] = {
    "braces": rf"(?P<braces>{_OURS})",
    "env": rf"\$\{{env:(?P<env>{_NAME})\}}",
    "input": r"\$\{(?:prompt|)input:(?P<input>[^}]+)\}",
    "folders": r"\$\{(?P<folders>workspaceFolder|workspaceFolderBasename|userHome|cwd|pathSeparator|/)\}",
    "curly": rf"\{{env:(?P<curly>{_NAME})\}}",
    "dollar": rf"\$(?P<dollar>{_NAME})|%(?P<percent>{_NAME})%",
    "none": r"(?!)",
}
_REST = r"(?P<file>\$?\{file:[^}]*\})|(?P<literal>\$\{)"
_BELONGS_TO_PLUGINS = re.compile(
    r"\$\{(CLAUDE_PLUGIN_ROOT|CLAUDE_PROJECT_DIR|user_config\.[^}]*)\}"
)


class Translated(msgspec.Struct, frozen=True):
    """A text in our own syntax, and what there is to say about it."""

    text: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Translated()"  # the text may hold a secret


def foreign(text: str) -> str:
    """A variable in this text that only its host can fill, or nothing."""
    found = _BELONGS_TO_PLUGINS.search(text)
    return found[0] if found else ""


def translate(text: str, syntaxes: tuple[Syntax, ...], around: Surroundings) -> Translated:
    """The text with every variable of the host's own syntax in ours; a `${` of no meaning is `$${`."""
    if not any(sign in text for sign in "$%{"):
        return Translated(text)
    notes: list[str] = []
    pattern = "|".join([*(_SYNTAX[syntax] for syntax in syntaxes), _REST])
    changed = re.sub(pattern, lambda found: _instead(found, around, notes), text)
    return Translated(changed, tuple(notes))


def _instead(found: re.Match[str], around: Surroundings, notes: list[str]) -> str:
    kind = found.lastgroup or ""
    writer = _WRITERS.get(kind)
    return writer(found[kind], around, notes) if writer else found[0]


def _reference(name: str, around: Surroundings, notes: list[str]) -> str:
    return f"${{{name}}}"


def _input(name: str, around: Surroundings, notes: list[str]) -> str:
    variable = re.sub(r"\W+", "_", name).upper().strip("_") or "INPUT"
    variable = variable if not variable[0].isdigit() else f"_{variable}"
    notes.append(f"the host asked for '{name}': set {variable} before use")
    return f"${{{variable}}}"


def _folder(name: str, around: Surroundings, notes: list[str]) -> str:
    value = {
        "userHome": str(around.home),
        "pathSeparator": os.sep,
        "/": os.sep,
        "workspaceFolderBasename": around.folder.name,
    }.get(name, str(around.folder))
    if name not in ("pathSeparator", "/"):
        notes.append(f"${{{name}}} was written as {value}")
    return value.replace("${", "$${")


def _file(reference: str, around: Surroundings, notes: list[str]) -> str:
    notes.append("a reference to a file was not read: put its value into a variable")
    return reference.replace("${", "$${")


def _literal(sign: str, around: Surroundings, notes: list[str]) -> str:
    return "$${"


_WRITERS: dict[str, Callable[[str, Surroundings, list[str]], str]] = {
    "env": _reference,
    "curly": _reference,
    "dollar": _reference,
    "percent": _reference,
    "input": _input,
    "folders": _folder,
    "file": _file,
    "literal": _literal,
}
