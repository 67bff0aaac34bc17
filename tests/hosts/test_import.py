"""What `import` makes of many servers: toolboxes that an agent can choose from, and a first search that finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcp_workbench.cli.servers import READ_WAIT
from tests.hosts.samples import FILES
from tests.kit.clock import PATIENCE, takes_at_most
from tests.kit.command import READS, Done, Person, environ, newcomer
from tests.kit.config import argv
from tests.kit.forked import READ_AT_START
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import text
from tests.kit.shared import SHORT

pytestmark = pytest.mark.usefixtures("forked_commands")

# By host, in its own format; some are in several.
SERVERS = {
    "claude-code": ["filesystem", "git", "github", "playwright", "memory", "postgres", "docker"],
    "cursor": ["git", "brave-search", "fetch", "sqlite", "grafana", "slack", "linear", "notion"],
    "vscode": ["playwright", "context7", "kubernetes", "gmail", "figma", "time"],
}
NAMES = sorted({name for names in SERVERS.values() for name in names})
# What three of them say of themselves.
SAYS = {
    "playwright": "Drives a real browser. Take a snapshot before every click.",
    "postgres": "# Postgres\n\nNever guess.",
    "gmail": "An MCP server that reads and sends mail.\x1b[31m",
}
PURPOSES = {
    "code": {"filesystem", "git", "github"},
    "web": {"playwright", "brave-search", "fetch"},
    "data": {"postgres", "sqlite"},
    "cloud": {"docker", "grafana", "kubernetes"},
    "work": {"slack", "linear", "notion", "gmail"},
    "knowledge": {"memory", "context7"},
    "media": {"figma"},
    "everyday": {"time"},
}


def tools_of(name: str) -> list[dict[str, Any]]:
    """A dozen tools, as verbose as real ones."""
    about = f"Of the service {name}: " + "says at length when it is to be used, and when not. " * 4
    properties = {
        f"parameter_{n}": {"type": "string", "description": "What it means, in a sentence or two."}
        for n in range(6)
    }
    schema = {"type": "object", "properties": properties}
    verbs = ("list", "read", "make", "change", "remove", "find", "copy", "move", "send", "check")
    plain = name.replace("-", "_")
    return [
        {"name": f"{plain}_{verb}", "description": f"{verb} things. {about}", "inputSchema": schema}
        for verb in (*verbs, "open", "close")
    ]


def server(folder: Path, name: str, *flags: str) -> dict[str, Any]:
    tools = folder / f"{name}.json"
    tools.write_text(json.dumps(tools_of(name)))
    says = (f"says={SAYS[name]}",) if name in SAYS else ()
    command, *args = argv(f"tools={tools}", *says, *flags)
    return {"command": command, "args": args}


def has(person: Person, host: str, servers: dict[str, Any], **more: Any) -> None:
    file = person.home / FILES[host][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    key = "servers" if host == "vscode" else "mcpServers"
    file.write_text(json.dumps({key: servers, **more}))
    file.chmod(0o600)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return newcomer(tmp_path)


@pytest.fixture
def collector(person: Person, tmp_path: Path) -> Person:
    """Somebody with eighteen servers and more in three hosts."""
    collect(person, tmp_path)
    return person


def collect(person: Person, folder: Path) -> None:
    for host, names in SERVERS.items():
        has(person, host, {name: server(folder, name) for name in names})


class Imported(NamedTuple):
    """Such a person after an import that has read all servers, which noted their processes in `started`."""

    person: Person
    done: Done
    started: Path


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """For tests that change nothing in the configuration: eighteen servers are started once."""
    folder = tmp_path_factory.mktemp("imported")
    person, started = newcomer(folder), folder / "started"
    collect(person, folder)
    done = person.types("import", "--yes", **READS, PIDFILE=str(started))
    return Imported(person, done, started)


def boxes(person: Person) -> dict[str, Any]:
    return json.loads(person.config.read_text())["toolboxes"]


def names_in(person: Person) -> dict[str, set[str]]:
    return {name: set(box["mcpServers"]) for name, box in boxes(person).items()}


def opened(person: Person, *toolboxes: str) -> list[int]:
    """How many characters it costs to open each toolbox."""
    with PipeHost(person.config, env=person.environ()) as host:
        host.initialize()
        results = [
            host.result("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": name}})
            for name in toolboxes
        ]
    return [sum(len(block["text"]) for block in result["content"]) for result in results]


# Toolboxes


def test_many_servers_become_toolboxes_by_what_they_are_for(imported: Imported) -> None:
    assert len(NAMES) >= 18

    person, done, _ = imported

    assert done.status == 0, done.err
    assert names_in(person) == PURPOSES
    assert f"{len(NAMES)} new servers for 8 toolboxes in workbench-config.json" in done.out
    for box in boxes(person).values():
        assert box["detail"] == "signature"
        assert 0 < len(box["description"]) <= 160


def test_opening_one_costs_a_small_part_of_what_one_toolbox_cost(
    imported: Imported, tmp_path: Path
) -> None:
    every = {name: server(tmp_path, name) for name in NAMES}
    whole = imported.person._replace(folder=tmp_path)
    whole.config.write_text(json.dumps({"toolboxes": {"one": {"mcpServers": every}}}))
    whole.config.chmod(0o600)

    largest = max(opened(imported.person, *PURPOSES))

    assert opened(whole, "one")[0] > 200_000
    assert largest < 10_000


def test_a_description_has_the_servers_own_words_and_nothing_a_terminal_would_obey(
    imported: Imported,
) -> None:
    person, done, _ = imported

    written = {name: box["description"] for name, box in boxes(person).items()}
    assert written["web"] == (
        "Web pages, browsers and search: playwright (Drives a real browser), "
        "brave-search (fixture), fetch (fixture)"
    )
    assert "postgres (Never guess)" in written["data"]  # the line above it is its name
    assert "gmail (Reads and sends mail" in written["work"]
    assert "\x1b" not in person.config.read_text() + done.out + done.err
    assert written["web"] in done.err


def test_a_few_servers_are_one_toolbox(person: Person, tmp_path: Path) -> None:
    has(person, "cursor", {name: server(tmp_path, name) for name in ("git", "gmail")})

    person.types("import", "--yes", **READS)

    assert names_in(person) == {"default": {"git", "gmail"}}
    assert boxes(person)["default"]["description"] == (
        "git (fixture), gmail (Reads and sends mail)"
    )
    assert boxes(person)["default"]["detail"] == "signature"


def test_a_later_server_goes_where_its_like_are(collector: Person, tmp_path: Path) -> None:
    collector.types("import", "--yes")
    more = {"gitlab": server(tmp_path, "gitlab"), "acme": server(tmp_path, "acme")}
    has(collector, "windsurf", more)
    before = boxes(collector)["code"]["description"]

    collector.types("import", "--yes")

    assert names_in(collector)["code"] == PURPOSES["code"] | {"gitlab"}
    assert names_in(collector)["default"] == {"acme"}
    assert boxes(collector)["code"]["description"] == before  # it may be somebody's own


def test_toolboxes_can_follow_the_hosts_or_the_project(person: Person, tmp_path: Path) -> None:
    has(person, "cursor", {"git": server(tmp_path, "git")})
    here = {str(person.folder): {"mcpServers": {"local": server(tmp_path, "local")}}}
    has(person, "claude-code", {"time": server(tmp_path, "time")}, projects=here)

    person.types("import", "--by", "host", "--yes")
    by_host = names_in(person)
    person.types("undo")
    person.types("import", "--by", "project", "--yes")

    assert by_host == {"claude-code": {"time", "local"}, "cursor": {"git"}}
    assert names_in(person) == {"general": {"time", "git"}, "work": {"local"}}


def test_many_servers_without_a_known_purpose_follow_their_hosts(
    person: Person, tmp_path: Path
) -> None:
    for host, sign in {"claude-code": "aa", "cursor": "zz"}.items():
        has(person, host, {f"{sign}{n}": server(tmp_path, f"{sign}{n}") for n in range(6)})

    person.types("import", "--yes")

    assert {name: len(of) for name, of in names_in(person).items()} == {
        "claude-code": 6,
        "cursor": 6,
    }
    assert boxes(person)["cursor"]["description"].startswith("Servers of Cursor: zz0, zz1, ")


def test_one_toolbox_and_several_are_a_contradiction(person: Person) -> None:
    done = person.types("import", "--toolbox", "a", "--by", "host")

    assert done.status == 2
    assert done.err.startswith("error: --toolbox and --by can't stand together\n")


def test_a_file_without_toolboxes_keeps_its_form(collector: Person) -> None:
    collector.config.write_text('{"mcpServers": {}}')
    collector.config.chmod(0o600)

    collector.types("import", "--yes")

    assert sorted(json.loads(collector.config.read_text())["mcpServers"]) == NAMES


# The first search


def test_the_first_search_finds_a_tool_and_starts_nothing(imported: Imported) -> None:
    person, _, started = imported
    read = len(pids_in(started))

    env = person.environ(PIDFILE=str(started), MCP_WORKBENCH_HOME="")
    with PipeHost(person.config, env=env, cwd=person.folder) as host:
        greeting = host.initialize()["instructions"]
        query = {"query": "send a message on slack"}
        result = host.result("tools/call", {"name": "search_tools", "arguments": query})

    assert read > 0
    assert len(pids_in(started)) == read
    assert text(result).splitlines()[1:2] == ["# work/slack"]
    assert text(result).splitlines()[2].startswith("slack_send(")
    assert all(name in greeting for name in NAMES)
    assert len(greeting) <= 2000


def test_a_server_that_never_answers_is_written_and_named_in_time(
    person: Person, tmp_path: Path
) -> None:
    has(person, "cursor", {"good": server(tmp_path, "good"), "mute": server(tmp_path, "m", "hang")})
    # As commands of other tests have it: they are forks of the same process.
    short = {k: v for k, v in environ(**SHORT).items() if k.startswith(READ_AT_START)}
    seconds = READ_WAIT * float(SHORT["MCP_WORKBENCH_TEST_DEADLINES"])

    with takes_at_most(PATIENCE):
        done = person.types("import", "--yes", **READS, **short)

    assert done.status == 0
    assert names_in(person) == {"default": {"good", "mute"}}
    assert "reading the tools of 2 servers, for at most " in done.err
    assert f"default/mute: not read: it has not answered within {seconds:g} s" in done.err
    assert "mcp-workbench doctor default/mute" in done.err
    assert "✔ default: 2 servers, 12 tools" in done.err


def test_servers_are_read_with_the_secrets_of_their_hosts(person: Person, tmp_path: Path) -> None:
    entry = server(tmp_path, "mail") | {"env": {"MAIL_TOKEN": "only-in-the-host-s-file"}}
    has(person, "cursor", {"mail": entry})

    done = person.types("import", "--yes", "--json", **READS)

    [line] = done.data["servers"]
    assert (line["toolbox"], line["tools"], line["unavailable"]) == ("default", 12, "")
    assert done.data["toolboxes"] == [
        {"name": "default", "description": "mail (fixture)", "servers": ["mail"]}
    ]
    assert "only-in-the-host-s-file" not in done.out + done.err + person.config.read_text()


def test_a_server_that_repeats_a_secret_is_not_quoted(person: Person, tmp_path: Path) -> None:
    secret = "only-in-the-host-s-file"
    command, *args = argv(f"says=Connected with {secret}.")
    entry = {"command": command, "args": args, "env": {"MAIL_TOKEN": secret}}
    has(person, "cursor", {"mail": entry})

    done = person.types("import", "--yes", **READS)

    assert boxes(person)["default"]["description"] == "mail"
    assert "✔ default: 1 server" in done.err


def test_nothing_is_started_before_the_answer_nor_with_no_check(
    collector: Person, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    collector.types("import", "--dry-run", **READS, PIDFILE=str(started))
    collector.types("import", **READS, PIDFILE=str(started))
    done = collector.types("import", "--yes", "--no-check", **READS, PIDFILE=str(started))

    assert not started.exists()
    assert "next: mcp-workbench check --connect, then mcp-workbench install HOST" in done.err
    assert "playwright (" not in boxes(collector)["web"]["description"]


# The same file twice


MAIL = {"command": "mail-mcp"}


def again(person: Person) -> Done:
    return person.types("import", "--dry-run", "--json")


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "the other way round"])
def test_a_second_import_adds_nothing_whatever_the_variables_are_called(
    person: Person, turn: int
) -> None:
    servers = {
        "one": {"command": "one-mcp", "env": {"API_KEY": "value-of-one"}},
        "two": {"command": "two-mcp", "env": {"API_KEY": "value-of-two"}},
        "three": {"command": "three-mcp", "args": ["--api-key", "value-of-three"]},
        "home": MAIL | {"env": {"API_KEY": "value-of-home", "MODE": "fast"}},
        "work": MAIL | {"env": {"API_KEY": "value-of-work", "MODE": "fast"}},
        "url": {"url": "https://Example.com:443/mcp/?api_key=value-of-url"},
    }
    has(person, "cursor", servers)
    has(person, "claude-code", {"one": {"command": "one-mcp", "env": {"API_KEY": "another-one"}}})
    assert person.types("import", "--yes").status == 0
    has(person, "cursor", dict(list(servers.items())[::turn]))

    data = again(person).data

    assert {line["state"] for line in data["servers"]} == {"there"}
    assert data["changes"] == []
    assert len({line["name"] for line in data["servers"]}) == 7


def test_another_account_is_another_server_whatever_its_place(person: Person) -> None:
    has(person, "cursor", {"home": MAIL | {"env": {"API_KEY": "value-of-home"}}})
    person.types("import", "--yes")
    both = {
        "work": MAIL | {"env": {"API_KEY": "value-of-work"}},
        "home": MAIL | {"env": {"API_KEY": "value-of-home"}},
    }
    has(person, "cursor", both)

    states = {line["server"]: line["state"] for line in again(person).data["servers"]}

    assert states == {"work": "new", "home": "there"}


def test_a_variable_with_another_value_now_is_another_account(person: Person) -> None:
    has(person, "cursor", {"home": MAIL | {"env": {"API_KEY": "value-of-home"}}})
    person.types("import", "--yes")
    has(person, "cursor", {"work": MAIL | {"env": {"API_KEY": "value-of-work"}}})

    done = person.types("import", "--dry-run", "--json", API_KEY="value-of-home")

    assert [line["state"] for line in done.data["servers"]] == ["new"]


# What the output says


def test_what_a_host_asked_for_is_among_the_variables_to_set(person: Person) -> None:
    asked = {"command": "tavily-mcp", "env": {"TAVILY_API_KEY": "${input:tavily-key}"}}
    known = {"command": "x-mcp", "env": {"X": "${env:SET_HERE}", "Y": "${env:SET_NOWHERE}"}}
    literal = {"command": "y-mcp", "env": {"Y_TOKEN": "a-literal-token"}}
    has(person, "vscode", {"tavily": asked, "known": known, "literal": literal})

    done = person.types("import", "--yes", SET_HERE="1")

    _, _, listed = done.err.partition("set these where the host starts this program:\n")
    file = "~/.config/Code/User/mcp.json"
    assert [line.split() for line in listed.splitlines()[:3]] == [
        ["export", "Y_TOKEN=…", "in", file],
        ["export", "TAVILY_KEY=…", "not", "set", "yet"],
        ["export", "SET_NOWHERE=…", "not", "set", "yet"],
    ]
    assert "SET_HERE" not in listed


def test_a_preview_hides_secrets_and_nothing_else(person: Person) -> None:
    plain = {"LOG_LEVEL": "debug", "REGION": "eu-west-1", "PORT": "8080", "ROOT": "/home/ada/notes"}
    hidden = {"WHAT": "9fK2mQ7xT4", "STRIPE_KEY": "rk-1", "DB": "postgres://ada:pw@localhost/x"}
    has(person, "cursor", {"s": {"command": "s-mcp", "env": plain | hidden}})

    done = person.types("import", "--dry-run")

    for name, value in plain.items():
        assert f'"{name}": "{value}"' in done.out
    assert '"WHAT": "[hidden]"' in done.out
    assert not [value for value in hidden.values() if value in done.out]


def test_warnings_come_after_the_preview(person: Person) -> None:
    entry = {"command": "x-mcp", "env": {"X_TOKEN": "a-literal-token"}, "sandbox": True}
    has(person, "cursor", {"a b": entry})

    lines = person.types("import", "--dry-run", AWS_PROFILE="x").out.splitlines()

    last = max(index for index, line in enumerate(lines) if line.startswith("+"))
    warnings = [index for index, line in enumerate(lines) if line.startswith("!")]
    assert len(warnings) == 4  # another name, a key that is not carried, a secret, the environment
    assert min(warnings) > last
