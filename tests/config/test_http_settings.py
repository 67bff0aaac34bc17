"""Tokens in the file: what they open, what is wrong with them, and that none is ever shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from mcp_workbench.config.http_settings import SHORTEST_TOKEN, TOKEN_VARIABLE, resolve_http
from mcp_workbench.config.json_schema import json_schema
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import HttpSettings, NamedToken, Snapshot
from tests.config.scenes import load, problems
from tests.kit.command import newcomer

BOXES: dict[str, Any] = {"dev": {"mcpServers": {}}, "ops": {"mcpServers": {}}}
CANARY = "canary-0123456789abcdef"


def file(tokens: Any, **http: Any) -> dict[str, Any]:
    return {"toolboxes": BOXES, "http": {"tokens": tokens, **http}}


def told(found: Snapshot) -> list[tuple[str, str]]:
    return [(w.code, w.path) for w in found.warnings if w.path.startswith("http")]


def test_each_token_has_a_name_a_variable_and_its_toolboxes(tmp_path: Path) -> None:
    tokens: dict[str, Any] = {
        "ci": {"token": "${CI}", "toolboxes": ["dev"]},
        "boss": {"token": "${BOSS}"},
        "nobody": {"token": "${NOBODY}", "toolboxes": []},
    }
    environ = {"CI": CANARY, "BOSS": CANARY + "2", "NOBODY": CANARY + "3"}
    found = load(tmp_path, file(tokens), environ)

    assert found.http.tokens == (
        NamedToken("ci", "${CI}", ("dev",)),
        NamedToken("boss", "${BOSS}", None),
        NamedToken("nobody", "${NOBODY}", ()),
    )
    assert told(found) == [("WB-CONF-017", "http.tokens.nobody.toolboxes")]
    wish = resolve_http(found, environ, loopback=True)
    assert [(t.name, t.token, t.toolboxes) for t in wish.tokens] == [
        ("ci", CANARY, ("dev",)),
        ("boss", CANARY + "2", None),
        ("nobody", CANARY + "3", ()),
    ]


WRONG: list[tuple[Any, str, str]] = [
    ({}, "WB-CONF-010", "http.tokens"),
    ([], "WB-CONF-010", "http.tokens"),
    ({"a": "x"}, "WB-CONF-010", "http.tokens.a"),
    ({"a": {}}, "WB-CONF-040", "http.tokens.a"),
    ({"a": {"token": ""}}, "WB-CONF-010", "http.tokens.a.token"),
    ({"a": {"token": 5}}, "WB-CONF-010", "http.tokens.a.token"),
    ({"a": {"token": "${A}", "toolboxes": "dev"}}, "WB-CONF-010", "http.tokens.a.toolboxes"),
    ({"a": {"token": "${A}", "toolboxes": None}}, "WB-CONF-010", "http.tokens.a.toolboxes"),
    ({"a": {"token": "${A}", "toolboxes": [1]}}, "WB-CONF-010", "http.tokens.a.toolboxes[0]"),
    ({"a b": {"token": "${A}"}}, "WB-CONF-013", 'http.tokens["a b"]'),
    ({"(anonymous)": {"token": "${A}"}}, "WB-CONF-013", 'http.tokens["(anonymous)"]'),
]


@pytest.mark.parametrize(("tokens", "code", "path"), WRONG)
def test_what_is_wrong_with_a_token_is_told_and_editors_agree(
    tokens: Any, code: str, path: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, file(tokens), {"A": CANARY})

    assert [(p.code, p.path) for p in found] == [(code, path)]
    assert found[0].fix
    editor = Draft202012Validator(json_schema())
    assert not editor.is_valid(file(tokens))  # pyright: ignore[reportUnknownMemberType]
    good = {"a": {"token": "${A}", "toolboxes": ["dev"]}}
    assert editor.is_valid(file(good))  # pyright: ignore[reportUnknownMemberType]


def test_a_toolbox_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    [found] = problems(tmp_path, file({"a": {"token": "${A}", "toolboxes": ["ops", "devv"]}}))

    assert (found.code, found.path) == ("WB-CONF-041", "http.tokens.a.toolboxes[1]")
    assert "'dev'" in found.fix


def test_one_text_for_two_names_is_told(tmp_path: Path) -> None:
    same = {"token": "${A}"}
    found = problems(tmp_path, file({"a": same, "b": same}, token="${A}"))

    assert [(p.code, p.path) for p in found] == [
        ("WB-CONF-042", "http.tokens.a.token"),
        ("WB-CONF-042", "http.tokens.b.token"),
    ]


def test_one_value_for_two_names_keeps_the_port_closed() -> None:
    wish = HttpSettings(tokens=(NamedToken("a", "${A}"), NamedToken("b", "${B}", ("dev",))))
    with pytest.raises(ConfigError) as caught:
        resolve_http(Snapshot({}, http=wish), {"A": CANARY, "B": CANARY}, loopback=True)

    [found] = caught.value.problems
    assert (found.code, found.path) == ("WB-CONF-042", "http.tokens.b")
    assert CANARY not in str(caught.value)


def test_the_variable_may_not_repeat_a_named_token() -> None:
    wish = HttpSettings(tokens=(NamedToken("a", "${A}", ("dev",)),))
    with pytest.raises(ConfigError) as caught:
        resolve_http(Snapshot({}, http=wish), {"A": CANARY, TOKEN_VARIABLE: CANARY}, loopback=True)

    assert [p.code for p in caught.value.problems] == ["WB-CONF-042"]


@pytest.mark.parametrize(
    ("value", "loopback", "code"),
    [
        (None, True, "WB-CONF-021"),
        ("", True, "WB-CONF-031"),
        ("two words", True, "WB-CONF-031"),
        ("a\r\nSet-Cookie: b", True, "WB-CONF-031"),
        ("x" * (SHORTEST_TOKEN - 1), False, "WB-CONF-031"),
        ("x" * SHORTEST_TOKEN, False, ""),
        ("short", True, ""),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_value_that_cannot_be_used_keeps_the_port_closed(
    value: str | None, loopback: bool, code: str, named: bool
) -> None:
    tokens = (NamedToken("a", "${A}"),) if named else ()
    wish = HttpSettings("" if named else "${A}", ("box.example",), tokens=tokens)
    environ = {} if value is None else {"A": value}
    if not code:
        assert resolve_http(Snapshot({}, http=wish), environ, loopback=loopback)
        return

    with pytest.raises(ConfigError) as caught:
        resolve_http(Snapshot({}, http=wish), environ, loopback=loopback)

    assert [problem.code for problem in caught.value.problems] == [code]
    assert not value or value not in str(caught.value)


def test_named_tokens_are_tokens_enough_for_an_open_address() -> None:
    wish = HttpSettings(allowed_hosts=("box.example",), tokens=(NamedToken("a", "${A}"),))

    assert resolve_http(Snapshot({}, http=wish), {"A": CANARY}, loopback=False).tokens


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("${SET}", []),
        ("${NOT_SET}", ["WB-CONF-021"]),
        (CANARY, ["WB-CONF-043"]),
        ("${SET:-" + CANARY + "}", ["WB-CONF-043"]),
        ("${SET:-}", []),
        ("prefix-${SET}", []),
    ],
)
def test_a_doubt_about_a_token_is_a_warning_with_its_place(
    text: str, codes: list[str], tmp_path: Path
) -> None:
    one = load(tmp_path, file({"a": {"token": text}}), {"SET": CANARY})
    single = load(tmp_path, {"toolboxes": BOXES, "http": {"token": text}}, {"SET": CANARY})

    assert told(one) == [(code, "http.tokens.a.token") for code in codes]
    assert told(single) == [(code, "http.token") for code in codes]
    assert CANARY not in repr(one.warnings) + repr(single.warnings)


@pytest.mark.parametrize("form", [(), ("--json",), ("-v",)])
@pytest.mark.parametrize("broken", [False, True])
def test_check_tells_about_tokens_and_shows_none(
    tmp_path: Path, form: tuple[str, ...], broken: bool
) -> None:
    tokens = {
        "a": {"token": CANARY, "toolboxes": ["dve"] if broken else ["dev"]},
        "b": {"token": "${UNSET_B}"},
        "c": {"token": "${SET_C}", "value": CANARY},
    }
    config = tmp_path / "workbench-config.json"
    config.write_bytes(msgspec.json.encode(file(tokens, token=CANARY[::-1])))
    config.chmod(0o644)
    environ = {"SET_C": CANARY + "-c", TOKEN_VARIABLE: CANARY + "-v"}

    done = newcomer(tmp_path).types("check", "--config", str(config), *form, **environ)

    said = done.out + done.err
    assert done.status == (2 if broken else 0)
    for code in ("WB-CONF-021", "WB-CONF-043", *(["WB-CONF-041"] if broken else [])):
        assert code in said
    assert "canary" not in said
    assert CANARY[::-1] not in said


def test_a_file_without_a_port_is_read_without_this(tmp_path: Path) -> None:
    code = (
        "import sys; from mcp_workbench.config.load import load_config; load_config(sys.argv[1]);"
        "print('mcp_workbench.config.http_settings' in sys.modules)"
    )
    config = tmp_path / "workbench-config.json"
    config.write_bytes(msgspec.json.encode({"toolboxes": BOXES}))
    config.chmod(0o644)

    done = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True)

    assert done.stdout == "False\n"
    assert load_config(config).http == HttpSettings()
