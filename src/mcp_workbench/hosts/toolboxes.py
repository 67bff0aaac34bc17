"""Proposes toolboxes for the servers of an import, and describes them.

A few servers are one toolbox. Many are grouped by what they are for, as far as their names, packages and
URLs say it, so that opening a toolbox costs little and its name tells an agent whether to open it. An agent
chooses by the description too: it says what the servers say of themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from mcp_workbench.hosts.files import Machine, candidates
from mcp_workbench.hosts.merge import ImportChoice
from mcp_workbench.hosts.own_config import DEFAULT
from mcp_workbench.hosts.plan import plain_name
from mcp_workbench.hosts.read import Entry
from mcp_workbench.hosts.table import HOSTS

By = Literal["purpose", "host", "project"]

FEW = 8  # servers that are one toolbox; their tools, one line each, are about 5,000 tokens
LONGEST = 160  # characters of a description; the instructions for hosts show no more of it
OTHER = "other"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that say nothing about what a server is for.
_COMMON = _set(
    "mcp server servers modelcontextprotocol the and for with npx uvx run latest index main cli dist src "
    "build bin node python js ts py mjs cjs com org io net dev app api www http https stdio sse remote"
)
# `A Model Context Protocol (MCP) server that provides …`
_PREAMBLE = re.compile(
    r"(?:this |it )?(?:is )?(?:an? |the )?(?:[\w-]+ ){0,2}?(?:MCP|Model Context Protocol)(?: MCP| Model Context Protocol)?"
    r"(?: (?:server|tool|implementation|service))?"
    r"(?: (?:that|which|for|to|provides|providing|enables|enabling|offers|offering|implements))* ",
    re.IGNORECASE,
)
MOST_READ = 4096  # characters of a server's instructions; they may have megabytes
SENTENCES = (45, 30)  # characters that each server gets of its own words, as far as there is room
_NAME_COUNTS = 3  # times as much as a word of the package or URL


class Purpose(msgspec.Struct, frozen=True):
    """What servers are for, by the words in their names."""

    name: str
    about: str
    words: frozenset[str]


def _purpose(name: str, about: str, words: str) -> Purpose:
    return Purpose(name, about, _set(words))


PURPOSES = (
    _purpose(
        "code",
        "Source code, files, repositories and builds",
        "git github gitlab bitbucket gitea filesystem file files fs code coding repo repos repository serena lsp ast "
        "sourcegraph semgrep sonarqube sonar eslint npm pypi cargo maven gradle packages package deps xcode jetbrains "
        "ide editor terminal shell bash commander desktop test tests ci jenkins circleci buildkite regex",
    ),
    _purpose(
        "web",
        "Web pages, browsers and search",
        "browser browserbase browsers playwright puppeteer chrome devtools selenium fetch web website search brave "
        "tavily exa perplexity firecrawl crawl crawler scrape scraper apify duckduckgo ddg kagi searxng serper bing "
        "google wikipedia hackernews rss news reddit twitter sitemap whois trends",
    ),
    _purpose(
        "data",
        "Databases, tables, charts and figures",
        "postgres postgresql pg sqlite mysql mariadb sql mssql oracle database databases db mongo mongodb redis "
        "elasticsearch opensearch clickhouse bigquery snowflake databricks duckdb supabase neon qdrant chroma pinecone "
        "weaviate milvus neo4j dbt csv excel spreadsheet pandas jupyter chart charts datagov finance stock stocks "
        "investor crypto price exchange",
    ),
    _purpose(
        "cloud",
        "Cloud, infrastructure and monitoring",
        "aws azure gcp cloud cloudflare cloudrun lambda s3 kubernetes k8s kubectl docker podman terraform pulumi ansible "
        "helm vercel netlify heroku digitalocean fly grafana prometheus datadog sentry newrelic pagerduty honeycomb "
        "logs metrics argocd ssh nginx",
    ),
    _purpose(
        "work",
        "Messages, calendars, documents and tasks",
        "slack teams discord telegram whatsapp mail gmail email outlook imap smtp calendar notion confluence jira "
        "atlassian linear asana trello todoist clickup monday drive gdrive sheets sharepoint obsidian note notes zendesk "
        "intercom hubspot salesforce stripe zapier ticket tickets issue issues crm contacts zoom miro airtable word ppt "
        "powerpoint office document documents pdf task tasks taskmanager todo reminders",
    ),
    _purpose(
        "knowledge",
        "Documentation, research, memory and reasoning",
        "docs documentation context7 deepwiki devdocs memory knowledge thinking sequential rag arxiv pubmed papers "
        "research wiki learn",
    ),
    _purpose(
        "media",
        "Design, images, sound and video",
        "figma sketch canva blender image images photo photos painter video videos youtube audio speech tts elevenlabs "
        "spotify music ffmpeg screenshot design icons mermaid mindmap",
    ),
    _purpose(
        "everyday",
        "Time, places and other everyday tools",
        "time clock timezone date weather map maps osm geo travel flight flights airbnb hotel calculator math random "
        "translate home homeassistant",
    ),
)  # fmt: skip
_ABOUT = {purpose.name: purpose.about for purpose in PURPOSES} | {OTHER: "Other tools"}


class ProposedToolbox(msgspec.Struct, frozen=True):
    """A toolbox of an import, and the names of its new servers."""

    name: str
    about: str
    servers: tuple[str, ...]


class ServerSummary(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    name: str  # in our configuration
    title: str = ""
    instructions: str = ""


# Which toolboxes


def proposed(
    new: Sequence[ImportChoice], by: By | None, existing: Collection[str], machine: Machine
) -> list[ProposedToolbox]:
    """Returns the toolboxes for these servers. `existing` are those that the file has already."""
    few = by is None and len(new) <= FEW
    grouped: dict[str, list[str]] = {}
    abouts: dict[str, str] = {}
    unknown = sum(not purpose_of(choice) for choice in new)
    for choice in new:
        if few:
            name, about = _usual(choice, existing), ""
        elif by == "host" or (by is None and unknown > FEW and not purpose_of(choice)):
            name, about = _of_host(choice)
        elif by == "project":
            name, about = _of_project(choice, machine)
        else:
            name = purpose_of(choice) or OTHER
            about = _ABOUT[name]
        grouped.setdefault(name, []).append(choice.name)
        abouts.setdefault(name, about)
    return [ProposedToolbox(name, abouts[name], tuple(of)) for name, of in grouped.items()]


def _usual(choice: ImportChoice, existing: Collection[str]) -> str:
    """Returns the toolbox for one of a few servers: one of an earlier import, or the usual one."""
    names = (purpose_of(choice), OTHER)
    return next((name for name in names if name in existing), DEFAULT)


def _of_host(choice: ImportChoice) -> tuple[str, str]:
    host = HOSTS.get(choice.server.host)
    if host is None:
        return DEFAULT, ""
    return host.id, f"Servers of {host.title}"


def _of_project(choice: ImportChoice, machine: Machine) -> tuple[str, str]:
    if not is_of_project(choice, machine):
        return "general", "Servers for every project"
    return plain_name(machine.folder.name), f"Servers of the project {machine.folder.name}"


def is_of_project(choice: ImportChoice, machine: Machine) -> bool:
    """Does the host have this server for the current folder alone?"""
    server = choice.server
    if server.keys[:1] == ("projects",):
        return True
    host = HOSTS.get(server.host)
    if host is None:
        return False
    path = Path(server.file)
    return path in candidates(host, "project", machine) and path not in candidates(
        host, "user", machine
    )


def purpose_of(choice: ImportChoice) -> str:
    """Returns the name of the purpose that most words of a server speak for; empty if none does."""
    scores = dict.fromkeys(PURPOSES, 0)
    for word, count in _words(choice.name, choice.entry):
        for purpose in PURPOSES:
            scores[purpose] += count * (word in purpose.words)
    best = max(PURPOSES, key=scores.__getitem__)
    return best.name if scores[best] else ""


def _words(name: str, entry: Entry) -> Iterator[tuple[str, int]]:
    """Yields the words of a server's name, package and URL, and how much each counts."""
    for word in _split(name):
        yield word, _NAME_COUNTS
    url = entry.get("url")
    if isinstance(url, str):
        try:
            texts = [urlsplit(url).hostname or "", urlsplit(url).path]
        except ValueError:
            texts = []
    else:
        args = [arg for arg in entry.get("args", ()) if not arg.startswith("-")]
        texts = [str(entry.get("command", "")).rpartition("/")[2], *map(_program, args)]
    for word in dict.fromkeys(word for text in texts for word in _split(text)):
        yield word, 1


def _program(arg: str) -> str:
    """Returns what an argument says about a program: of a path, its last part only."""
    return arg if arg.startswith("@") or "://" in arg else arg.rstrip("/").rpartition("/")[2]


def _split(text: str) -> list[str]:
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", text)
    return [word for word in re.findall(r"[a-z0-9]+", parts.lower()) if word not in _COMMON]


# Descriptions


def description(about: str, servers: Sequence[ServerSummary]) -> str:
    """Returns one line on what these servers are for, in their own words, at most `LONGEST` characters."""
    head = f"{about}: " if about else ""
    parts = [server.name for server in servers]
    while len(head) + len(", ".join(parts)) > LONGEST and len(parts) > 2:
        parts[-2:] = [f"and {len(servers) - len(parts) + 2} more"]
    for longest in SENTENCES:
        for index, server in enumerate(servers[: len(parts)]):
            if parts[index] != server.name:
                continue
            longer = [*parts[:index], _described(server, longest), *parts[index + 1 :]]
            if len(head) + len(", ".join(longer)) <= LONGEST:
                parts = longer
    return (head + ", ".join(parts))[:LONGEST]


def _described(server: ServerSummary, longest: int) -> str:
    own = _first_sentence(server) or _telling_title(server)
    if not own:
        return server.name
    if len(own) > longest:
        own = f"{own[:longest].rpartition(' ')[0] or own[: longest - 1]}…"
    return f"{server.name} ({own})"


def _first_sentence(server: ServerSummary) -> str:
    """Returns the first sentence of its instructions that says more than its name, without Markdown.

    Whatever a server writes there becomes one short line: it is not trusted with more.
    """
    lines = map(_cleaned, server.instructions[:MOST_READ].splitlines())
    line = next((line for line in lines if _says_more(line, server.name)), "")
    sentence = re.split(r"(?<=[.!?。])\s|[。;]", line, maxsplit=1)[0].rstrip(".!:, ")
    preamble = _PREAMBLE.match(sentence)
    telling = sentence[preamble.end() :] if preamble else sentence
    return telling[:1].upper() + telling[1:] if telling else sentence


def _cleaned(line: str) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in line)
    return " ".join(re.sub(r"[#*`<>()\[\]{}]+", " ", shown).split())


def _telling_title(server: ServerSummary) -> str:
    """Returns the server's title if it says more than its name here."""
    title = _cleaned(server.title[:MOST_READ].replace("-", " "))
    return title if _says_more(title, server.name) else ""


def _says_more(text: str, name: str) -> bool:
    return bool(set(_split(text)) - set(_split(name)))
