"""The schema for editors says what the loader says, because both come from one table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mcp_workbench.config import jsonc
from mcp_workbench.config.json_schema import TABLES, json_schema
from mcp_workbench.config.schema import SERVER, Key
from mcp_workbench.config.validate import validate
from mcp_workbench.core.error_codes import CODES
from mcp_workbench.core.spec import Limits, ServerSpec
from tests.config.scenes import CONTRACT

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src/mcp_workbench/config").glob("*.py"))
GOLDEN = sorted((ROOT / "tests/golden/config").glob("*.json"))
EDITOR = Draft202012Validator(json_schema())


def accepted_by_the_editor(value: Any) -> bool:
    return EDITOR.is_valid(value)  # pyright: ignore[reportUnknownMemberType]


def accepted_by_the_loader(value: Any) -> bool:
    _, findings = validate(value, {})
    return all(finding.severity == "warning" for finding in findings)


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert "$id" not in json_schema()


def test_the_schema_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(json_schema())) == json_schema()


def test_the_example_of_the_contract_is_accepted() -> None:
    assert accepted_by_the_editor(jsonc.parse(CONTRACT))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.stem)
def test_editor_and_loader_agree_on_every_golden_case(case: Path) -> None:
    try:
        value = jsonc.parse(case.read_text("utf-8"))
    except jsonc.SyntaxProblem:
        return

    assert accepted_by_the_editor(value) is accepted_by_the_loader(value)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


ENTRIES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "command": one_of("x", "", 1, None, "${A}"),
        "url": one_of("http://x/", "HTTPS://x", "x", "", "${A}", 1),
        "args": one_of([], ["a"], [1], "a", None),
        "env": one_of({}, {"A": "a"}, {"A": 1}, {"A": None}, {"": "x"}, {"A=B": "x"}, []),
        "headers": one_of({}, {"X-A": "a"}, {"X A": "a"}, {"A": {}}),
        "type": one_of("stdio", "http", "sse", "streamable-http", "ws", 1),
        "transport": one_of("stdio", "http", "sse", "streamable-http", "ws"),
        "disabled": one_of(True, False, "yes"),
        "toolFilters": one_of([], ["*"], "*", [None]),
        "timeout": one_of(1, 0.5, 0, -1, True, "1", 1e300),
        "era": one_of("auto", "old"),
        "other": one_of(1),
    },
)
FILES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "toolMode": one_of("proxy", "dynamic", "other", 1),
        "mcpServers": st.dictionaries(one_of("a", "a__b", "a_", "a b", ""), ENTRIES, max_size=1),
        "toolboxes": st.dictionaries(
            one_of("a", "a__b", "a_", "ä"),
            st.fixed_dictionaries(
                {},
                optional={
                    "description": one_of("", "x", 1),
                    "mcpServers": st.dictionaries(one_of("a", "a_", "."), ENTRIES, max_size=1),
                },
            ),
            max_size=1,
        ),
        "limits": st.dictionaries(
            one_of("messageBytes", "callsPerServer", "openWait", "other"),
            one_of(0, 1, 1024, 1.5, 4096.0, "1", None),
            max_size=2,
        ),
    },
)


def sse_beside_http(entry: Any) -> bool:
    """The one thing that only the loader sees: two remote transports that differ."""
    words = {entry.get("type"), entry.get("transport")}
    return "sse" in words and bool(words & {"http", "streamable-http"})


@given(FILES)
def test_editor_and_loader_agree(value: dict[str, Any]) -> None:
    boxes = [value, *value.get("toolboxes", {}).values()]
    entries = [entry for box in boxes for entry in box.get("mcpServers", {}).values()]
    if any(sse_beside_http(entry) for entry in entries):
        return

    assert accepted_by_the_editor(value) is accepted_by_the_loader(value)


def test_every_key_has_a_sentence_and_something_to_show() -> None:
    for key in (key for table in TABLES.values() for key in table.values()):
        assert key.doc.endswith(".")
        assert key.default is not None or key.example is not None


def test_the_defaults_in_the_table_are_the_defaults_of_the_values() -> None:
    limits = {name: getattr(Limits(), snake(name)) for name in TABLES["limits"]}
    assert limits == {name: key.default for name, key in TABLES["limits"].items()}

    fields = {f.name: f.default for f in msgspec.structs.fields(ServerSpec)}
    for name in ("era", "timeout", "connectTimeout"):
        assert SERVER[name].default == fields[snake(name)]


def snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def test_every_code_that_is_printed_is_explained_and_no_other() -> None:
    used = {
        code for file in SOURCES for code in re.findall(r"WB-CONF-\d{3}", file.read_text("utf-8"))
    }

    assert used == {code for code in CODES if code.startswith("WB-CONF-")}


def rows(table: dict[str, Key]) -> list[str]:
    """The table of the documentation, as it has to be."""
    return [
        f"| `{name}` | {key.kind.words} | {shown(key.default)} | {key.doc} |"
        for name, key in table.items()
    ]


def shown(default: Any) -> str:
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return "" if default is None else f"`{msgspec.json.encode(default).decode()}`"


@pytest.mark.parametrize("name", list(TABLES))
def test_the_documentation_lists_every_key(name: str) -> None:
    documented = (ROOT / "docs/configuration.md").read_text("utf-8").splitlines()

    missing = [row for row in rows(TABLES[name]) if row not in documented]

    assert missing == []


def test_the_documentation_lists_nothing_else() -> None:
    documented = (ROOT / "docs/configuration.md").read_text("utf-8")
    listed = re.findall(r"^\| `([$A-Za-z]+)` \|", documented, re.MULTILINE)

    assert listed == [name for table in TABLES.values() for name in table]
