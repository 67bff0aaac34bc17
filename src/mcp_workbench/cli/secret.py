"""`secret`: sets, lists and removes the values in the encrypted store."""

from __future__ import annotations

import re
import sys
import time

import click
import msgspec

from mcp_workbench.cli.servers import age_text
from mcp_workbench.cli.settings import DONE, FAILED, Settings, global_options, stdin_is_terminal
from mcp_workbench.cli.stored_secrets import own_store
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.config.kinds import VARIABLE_NAME
from mcp_workbench.config.secret_store import LONGEST, require_cryptography
from mcp_workbench.core.errors import ConfigError, InvalidCall
from mcp_workbench.core.spec import SecretSources

_NO_ARGUMENT = (
    "the value is no argument, which every user of this machine could read and the shell would keep"
)
_ASKED = "leave it out: a terminal asks for it, and otherwise it is read from stdin"


class ListedSecret(msgspec.Struct, frozen=True, rename="camel"):
    """One secret in the JSON of `secret list`."""

    name: str
    source: str  # that the configuration names; empty: none, so that nothing reads it
    set_at: float | None  # in the store; null: it is not there


@click.group()
@global_options
def secret() -> None:
    """Keep secrets in the encrypted store, for `${NAME}` in the configuration.

    A configuration uses the value of NAME if it says so: "secrets": {"NAME": "store"}. The store and its
    key are in the state folder, readable by you only.

    \b
    Examples:
      mcp-workbench secret set GITHUB_TOKEN
      mcp-workbench secret list
      mcp-workbench secret remove GITHUB_TOKEN
    """


@secret.command("set")
@click.argument("words", metavar="NAME", nargs=-1, type=click.UNPROCESSED)
@global_options
@click.pass_obj
def set_(settings: Settings, words: tuple[str, ...]) -> int:
    """Set a secret, or replace its value.

    A terminal asks for the value and does not show it. Otherwise it is read from stdin; a line end at its
    end does not count.

    \b
    Examples:
      mcp-workbench secret set GITHUB_TOKEN
      pass show github | mcp-workbench secret set GITHUB_TOKEN
    """
    if len(words) > 1:
        raise InvalidCall(_NO_ARGUMENT, hint=_ASKED)
    [name] = _names(words)
    require_cryptography()  # before the person types anything
    own_store().write({name: _value(settings, name)})
    if settings.json:
        say_json({"set": name})
    elif not settings.quiet:
        say(f"{glyph('good')} {name} is in the encrypted store", err=True)
        if dict(_configured(settings)).get(name) is None:
            say(f'next: "secrets": {{"{name}": "store"}} in the configuration uses it', err=True)
    return DONE


@secret.command("list")
@global_options
@click.pass_obj
def list_(settings: Settings) -> int:
    """List the secrets of the configuration and of the store, without their values.

    \b
    Examples:
      mcp-workbench secret list
      mcp-workbench secret list --json
    """
    sources = {name: source.kind for name, source in _configured(settings)}
    stored = own_store().names()
    rows = [
        ListedSecret(name, sources.get(name, ""), stored.get(name))
        for name in sorted({*sources, *stored})
    ]
    if settings.json:
        say_json(rows)
        return DONE
    for line in table([(row.name, *_described(row)) for row in rows]):
        say(line)
    if not rows and settings.talkative:
        say("there is none; mcp-workbench secret set NAME keeps one", err=True)
    return DONE


@secret.command("remove")
@click.argument("words", metavar="NAME...", nargs=-1)
@global_options
@click.pass_obj
def remove(settings: Settings, words: tuple[str, ...]) -> int:
    """Remove secrets from the store.

    \b
    Example:
      mcp-workbench secret remove GITHUB_TOKEN
    """
    names = _names(words)
    removed = own_store().remove(names)
    if settings.json:
        say_json({"removed": removed})
    for name in names if not settings.json else ():
        there = name in removed
        text = "removed from the encrypted store" if there else "is not in the encrypted store"
        say(f"{glyph('good' if there else 'bad')} {name}: {text}", err=True)
    return DONE if len(removed) == len(set(names)) else FAILED


def _names(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        raise InvalidCall("no secret is named", hint="mcp-workbench secret set NAME")
    for word in words:
        if not re.fullmatch(VARIABLE_NAME, word):
            # Not quoted: it may be a value.
            raise InvalidCall(
                "a secret's name is made of letters, digits and underscores, and begins with no digit",
                hint="such as GITHUB_TOKEN",
            )
    return words


def _value(settings: Settings, name: str) -> str:
    if stdin_is_terminal():
        if settings.no_input:
            raise InvalidCall("the value is missing", hint=f"… | mcp-workbench secret set {name}")
        value = str(click.prompt(f"value of {name}", hide_input=True, err=True))
    else:
        data = sys.stdin.buffer.read(4 * LONGEST + 1)
        try:
            value = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise InvalidCall("the value is not UTF-8 text") from None
    if not value or "\0" in value or len(value) > LONGEST:
        raise InvalidCall(
            f"the value is empty, longer than {LONGEST} characters, or has a NUL in it"
        )
    return value


def _configured(settings: Settings) -> SecretSources:
    """Returns the secrets of the configuration; none if that can't be used."""
    try:
        return settings.snapshot(silent=True, shows_demo=True).secrets
    except ConfigError:
        return ()


def _described(row: ListedSecret) -> tuple[str, str]:
    source = plain(row.source) or "not used by this configuration"
    if row.set_at is None:
        return (
            source,
            "" if row.source != "store" else f"not set: mcp-workbench secret set {row.name}",
        )
    return source, f"set {age_text(time.time() - row.set_at)}"
