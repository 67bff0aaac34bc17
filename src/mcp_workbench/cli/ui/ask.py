"""Asks the user on the terminal what a server wants to know (elicitation)."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click
import msgspec

from mcp_workbench.cli.form import BadValue, hint, read, shown
from mcp_workbench.cli.terminal import ProgressLine, plain, say
from mcp_workbench.protocol.elicitation import ELICIT, Question
from mcp_workbench.schema.form import FormField, form_fields

Json = dict[str, Any]

MOST = 65536  # bytes of a line; a terminal passes at most 4,096
ACCEPTED, DECLINED, CANCELLED = "accept", "decline", "cancel"
_HOW = "Enter takes what stands in [ ]; a lone ! declines, Ctrl-D cancels."


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
            say("\n(the server withdrew the question)", err=True)
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
    say(f"  {plain(field.label)} ({hint(field)}{need}){about}", err=True)
    for number, (_, title) in enumerate(field.choices, 1):
        say(f"    {number}. {plain(title)}", err=True)
    proposed = "" if field.default is None else f" [{plain(shown(field, field.default))}]"
    while True:
        typed = await _typed(f"  {plain(field.name)}{proposed}: ")
        if not typed and (field.default is not None or not field.required):
            return field.default
        try:
            return read(field, typed)
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
