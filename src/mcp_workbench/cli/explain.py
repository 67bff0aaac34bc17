"""`explain`: explains an error code or a topic, offline."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_workbench.cli.settings import DONE, Settings, global_options
from mcp_workbench.cli.ui.render import say, say_json
from mcp_workbench.core.error_codes import CODES
from mcp_workbench.core.errors import InvalidCall, did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TOPICS = {"migration": "from earlier names and from other workbenches to this one"}


def _complete(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem | str]:
    return [name for name in (*TOPICS, *CODES) if name.lower().startswith(typed.lower())]


@click.command()
@click.argument("topic", metavar="TOPIC|CODE", default="", shell_complete=_complete)
@global_options
@click.pass_obj
def explain(settings: Settings, topic: str) -> int:
    """Explain an error code or a topic; without one, list them all.

    \b
    Examples:
      mcp-workbench explain
      mcp-workbench explain WB-CONF-021
      mcp-workbench explain migration
    """
    if not topic:
        _list(settings)
    elif topic.lower() in TOPICS:
        text = document(topic.lower())
        say_json({"topic": topic.lower(), "text": text}) if settings.json else say(text.rstrip())
    else:
        _code(settings, topic)
    return DONE


def _list(settings: Settings) -> None:
    if settings.json:
        say_json({"topics": TOPICS, "codes": {code: row.title for code, row in CODES.items()}})
        return
    for name, about in [*TOPICS.items(), *((code, row.title) for code, row in CODES.items())]:
        say(f"{name:12}  {about}")


def _code(settings: Settings, topic: str) -> None:
    code = topic.upper()
    row = CODES.get(code)
    if row is None:
        hint = did_you_mean(code, list(CODES)) or did_you_mean(code.lower(), list(TOPICS))
        raise InvalidCall(
            f"nothing is known about '{topic}'",
            hint=hint or "mcp-workbench explain lists all of it",
        )
    if settings.json:
        say_json({"code": code} | {n: getattr(row, n) for n in ("title", "meaning", "remedy")})
    else:
        say(f"{code}: {row.title}\n\n{row.meaning}\n\nWhat to do: {row.remedy}")


def document(name: str) -> str:
    """Returns a document from the installed package, or from the source tree."""
    shipped = files("mcp_workbench").joinpath("docs", f"{name}.md")
    if shipped.is_file():
        return shipped.read_text("utf-8")
    return (Path(__file__).parents[3] / "docs" / f"{name}.md").read_text("utf-8")
