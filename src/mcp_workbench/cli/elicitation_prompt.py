"""Elicitation on the terminal: asks the user what a server wants to know during a `call`."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from typing import Any, cast

import click
import msgspec

from mcp_workbench.cli.terminal import ProgressLine, plain, say
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.protocol.elicitation import ELICIT, Question
from mcp_workbench.schema.form_fields import FormField, fits_format, form_fields

Json = dict[str, Any]

MOST = 65536  # bytes of a line; a terminal passes at most 4,096
ACCEPTED, DECLINED, CANCELLED = "accept", "decline", "cancel"
_HOW = "Enter takes what stands in [ ]; a lone ! declines, Ctrl-D cancels."
_YES = frozenset({"y", "yes", "true", "1", "on"})
_NO = frozenset({"n", "no", "false", "0", "off"})
_FORMATS = {
    "email": "an e-mail address",
    "uri": "an address such as https://…",
    "date": "YYYY-MM-DD",
    "date-time": "YYYY-MM-DDThh:mm:ss",
}


class Stopped(Exception):
    """The user declines or cancels; the text is the action of the answer."""


class TerminalPerson:
    """Answers elicitation: fills in forms line by line, and confirms URLs."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}}  # noqa: RUF012 - never changed

    def __init__(self, line: ProgressLine) -> None:
        self._line = line

    async def answer(self, question: Question) -> Json | None:
        if question.method != ELICIT:
            return None
        params: Json = msgspec.json.decode(question.params)
        self._line.pause()
        try:
            return await _elicit(params)
        except Stopped as action:
            return {"action": str(action)}
        except asyncio.CancelledError:
            say("\n(the question was withdrawn)", err=True)
            raise
        finally:
            self._line.resume()


async def _elicit(params: Json) -> Json:
    say(click.style(plain(str(params.get("message", ""))), bold=True), err=True)
    if params.get("mode") == "url":
        say(f"  {plain(str(params.get('url', '')))}", err=True)
        accepted = await _confirm("open this address in your browser; have you?", default=False)
        return {"action": ACCEPTED if accepted else DECLINED}
    wanted = form_fields(params.get("requestedSchema"))
    if not wanted:
        accepted = await _confirm("accept?", default=False)
        return {"action": ACCEPTED, "content": {}} if accepted else {"action": DECLINED}
    say(click.style(f"  {_HOW}", dim=True), err=True)
    content: Json = {}
    for field in wanted:
        value = await _filled(field)
        if value is not None:
            content[field.name] = value
    if not await _confirm("send this?", default=True):
        return {"action": DECLINED}
    return {"action": ACCEPTED, "content": content}


async def _filled(field: FormField) -> Any:
    """Returns the value of this field; None to omit it."""
    need = "" if field.required else ", optional"
    about = f": {plain(field.about)}" if field.about else ""
    say(f"  {plain(field.label)} ({field_hint(field)}{need}){about}", err=True)
    for number, (_, title) in enumerate(field.choices, 1):
        say(f"    {number}. {plain(title)}", err=True)
    proposed = "" if field.default is None else f" [{plain(value_text(field, field.default))}]"
    while True:
        typed = await _typed(f"  {plain(field.name)}{proposed}: ")
        if not typed and (field.default is not None or not field.required):
            return field.default
        try:
            return read_value(field, typed)
        except BadValue as fault:
            say(f"    {plain(str(fault))}", err=True)


async def _confirm(text: str, *, default: bool) -> bool:
    while True:
        typed = (await _typed(f"  {text} {'[Y/n]' if default else '[y/N]'} ")).strip().lower()
        if not typed:
            return default
        if typed in ("y", "yes"):
            return True
        if typed in ("n", "no"):
            return False


async def _typed(prompt: str) -> str:
    """Reads one line from the terminal; unlike `input()`, it can be cancelled."""
    click.echo(prompt, nl=False, err=True)
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    source = sys.stdin.fileno()
    loop.add_reader(source, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(source)
    data = os.read(source, MOST)
    if not data:
        say("", err=True)
        raise Stopped(CANCELLED)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if text.strip() == "!":
        raise Stopped(DECLINED)
    return text


# Fields of a form


class BadValue(Exception):
    """The text is not a value of the field; the message says what is."""


def field_hint(field: FormField) -> str:
    """Returns what the field takes, in a few words."""
    if field.kind == "boolean":
        return "yes or no"
    if field.kind == "choice":
        return f"1 to {len(field.choices)}, or a name"
    if field.kind == "choices":
        return "numbers or names, with commas between them"
    if field.kind in ("integer", "number"):
        low, high = field.bounds
        word = "a whole number" if field.kind == "integer" else "a number"
        return f"{word}{f' from {low}' if low is not None else ''}{f' to {high}' if high is not None else ''}"
    return _FORMATS.get(field.format, "text")


def value_text(field: FormField, value: Any) -> str:
    """Returns a value as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value_text(field, item) for item in cast("list[Any]", value))
    return dict(field.choices).get(str(value), str(value))


def read_value(field: FormField, text: str) -> Any:
    """Returns the value that was typed. Raises BadValue."""
    match field.kind:
        case "boolean":
            return _truth(text)
        case "integer" | "number":
            return _number(field, text)
        case "choice":
            return _choice(field, text)
        case "choices":
            return _several(field, text)
        case _:
            return _text(field, text)


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise BadValue("yes or no, please")
    return word in _YES


def _number(field: FormField, text: str) -> float:
    try:
        value = int(text) if field.kind == "integer" else float(text)
    except ValueError:
        raise BadValue(f"{field_hint(field)}, please") from None
    low, high = field.bounds
    too_low = low is not None and value < low
    too_high = high is not None and value > high
    if too_low or too_high or value in (math.inf, -math.inf) or math.isnan(value):
        raise BadValue(f"{field_hint(field)}, please")
    return value


def _choice(field: FormField, text: str) -> str:
    word = text.strip()
    for value, title in field.choices:
        if word in (value, title) or word.lower() in (value.lower(), title.lower()):
            return value
    if word.isdecimal() and 1 <= int(word) <= len(field.choices):
        return field.choices[int(word) - 1][0]
    near = did_you_mean(word, [title for _, title in field.choices])
    raise BadValue(f"that is none of them{f': {near}' if near else ''}")


def _several(field: FormField, text: str) -> list[str]:
    parts = [part for part in text.split(",") if part.strip()]
    values = list(dict.fromkeys(_choice(field, part) if field.choices else part for part in parts))
    _require_bounds(field, len(values), "of them")
    return values


def _text(field: FormField, text: str) -> str:
    _require_bounds(field, len(text), "characters")
    if not fits_format(text, field.format):
        raise BadValue(f"{field_hint(field)}, please")
    return text


def _require_bounds(field: FormField, count: int, what: str) -> None:
    low, high = field.bounds
    if low is not None and count < low:
        raise BadValue(f"at least {low} {what}, please")
    if high is not None and count > high:
        raise BadValue(f"at most {high} {what}, please")
