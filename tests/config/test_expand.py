"""Variables in the strings of a server entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.config.expand import (
    Expanded,
    Unexpandable,
    dotted,
    doubtful,
    expand,
    expand_target,
    references,
    secrets_of,
)
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand

ENVIRON = {"A": "apple", "B": "${A}", "EMPTY": "", "_x9": "under"}
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
VALUES = st.dictionaries(NAMES, st.text(max_size=12))
TRICKY = st.text(st.sampled_from("$${}:-AB x1\n"), max_size=30)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("${A}", "apple"),
        ("x${A}y${A}", "xappleyapple"),
        ("${_x9}", "under"),
        ("${A:-other}", "apple"),
        ("${NOPE:-other}", "other"),
        ("${NOPE:-}", ""),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${NOPE:-a b:-c}", "a b:-c"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${A:-x}${A}", "${A:-x}apple"),
        ("${B}", "${A}"),
        ("${NOPE:-${A}}", "${A}"),
        ("$A", "$A"),
        ("$", "$"),
        ("$$", "$$"),
        ("${", "${"),
        ("${A", "${A"),
        ("${}", "${}"),
        ("${1x}", "${1x}"),
        ("${A B}", "${A B}"),
        ("${A-x}", "${A-x}"),
        ("${env:A}", "${env:A}"),
        ("${ä}", "${ä}"),
    ],
)
def test_a_text_expands_to(text: str, expanded: str) -> None:
    assert expand(text, ENVIRON) == Expanded(expanded)


def test_an_unset_variable_without_default_is_named_once() -> None:
    assert expand("${X} ${Y:-} ${X} ${Z}", {}).missing == ("X", "Z")


def test_references_are_the_variables_a_text_asks_for() -> None:
    assert references("${A} ${B:-x} $${C} ${A} ${1x}") == ("A", "B")


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("${A} $${B} ${C:-x} $D", False),
        ("${env:A}", True),
        ("${A:-${B}}", True),
        ("${A", True),
        ("$${A:-}{", False),
    ],
)
def test_what_only_looks_like_a_variable_is_doubtful(text: str, *, doubt: bool) -> None:
    assert doubtful(text) is doubt


@given(st.text().filter(lambda text: "$" not in text), VALUES)
def test_a_text_without_a_dollar_stays(text: str, environ: dict[str, str]) -> None:
    assert expand(text, environ) == Expanded(text)


@given(TRICKY | st.text(), VALUES)
def test_an_escaped_text_comes_back_as_it_was(text: str, environ: dict[str, str]) -> None:
    assert expand(text.replace("${", "$${"), environ) == Expanded(text)


@given(NAMES, TRICKY)
def test_a_value_is_never_expanded_again(name: str, value: str) -> None:
    assert expand(f"<${{{name}}}>", {"A": "again", name: value}).text == f"<{value}>"


@given(NAMES, TRICKY.filter(lambda text: "}" not in text))
def test_a_default_is_never_expanded(name: str, default: str) -> None:
    assert expand(f"${{{name}:-{default}}}", {}).text == default


@given(TRICKY)
def test_what_is_missing_is_referred_to_and_unset(text: str) -> None:
    assert set(expand(text, {"A": "x"}).missing) <= set(references(text)) - {"A"}


def stdio(**fields: object) -> ServerSpec:
    target = StdioCommand(**{"command": "run", **fields})  # type: ignore[arg-type]
    return ServerSpec(ServerAddress("dev", "fs"), target, place="toolboxes.dev.mcpServers.fs")


def http(url: str = "https://example.com/mcp", **headers: str) -> ServerSpec:
    target = HttpEndpoint(url, tuple(headers.items()))
    return ServerSpec(
        ServerAddress("ops", "issues"), target, place="toolboxes.ops.mcpServers.issues"
    )


def test_every_string_of_a_command_is_expanded() -> None:
    spec = stdio(
        command="${A}", args=("-x", "${A}"), env=(("K", "${A}"),), cwd="${A}", folder="/etc/${A}"
    )

    assert expand_target(spec, ENVIRON) == StdioCommand(
        "apple", ("-x", "apple"), (("K", "apple"),), "apple", "/etc/${A}"
    )


def test_every_string_of_an_endpoint_is_expanded() -> None:
    spec = http("https://${A}.example.com", Authorization="Bearer ${A}")

    assert expand_target(spec, ENVIRON) == HttpEndpoint(
        "https://apple.example.com", (("Authorization", "Bearer apple"),)
    )


def test_an_unset_variable_is_told_with_name_place_and_remedy() -> None:
    with pytest.raises(Unexpandable) as caught:
        expand_target(http(Authorization="Bearer ${ISSUES_TOKEN}"), {})

    assert caught.value.message == (
        "variable ISSUES_TOKEN is not set and has no default "
        "(toolboxes.ops.mcpServers.issues.headers.Authorization; "
        "fix: export ISSUES_TOKEN=…   or write ${ISSUES_TOKEN:-})"
    )


def test_every_unset_variable_is_told_at_once() -> None:
    with pytest.raises(Unexpandable, match=r"variable X .*args\[0\].*variable Y .*env\.K"):
        expand_target(stdio(args=("${X}",), env=(("K", "${Y}"),)), {})


def test_a_server_that_had_a_problem_at_load_stays_unavailable() -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("run"), problem="a reason")

    with pytest.raises(Unexpandable, match="a reason"):
        expand_target(spec, {})


def test_a_header_value_with_a_line_break_is_refused_without_being_shown() -> None:
    with pytest.raises(Unexpandable, match=r"line break.*headers\.X") as caught:
        expand_target(http(X="${A}"), {"A": "hidden\r\nX-Evil: 1"})

    assert "hidden" not in str(caught.value)


def test_a_variable_may_have_several_lines_in_the_environment_of_a_command() -> None:
    target = expand_target(stdio(env=(("PEM", "${PEM}"),)), {"PEM": "one\ntwo"})

    assert isinstance(target, StdioCommand)
    assert target.env == (("PEM", "one\ntwo"),)


def test_no_value_shows_in_a_repr() -> None:
    environ = {"S": "hunter2hunter2"}
    command = stdio(command="${S}", args=("${S}",), env=(("K", "${S}"),), cwd="${S}")
    endpoint = http("https://x/${S}?k=${S}", Authorization="${S}")

    for spec in (command, endpoint):
        assert "hunter2" not in repr(expand_target(spec, environ))
    assert "hunter2" not in repr(expand("${S}", environ))


def test_values_of_variables_are_secret_under_their_names() -> None:
    environ = {"ISSUES_TOKEN": "hunter2hunter2", "SHORT": "tiny"}
    spec = http("https://x/${SHORT}", Authorization="Bearer ${ISSUES_TOKEN}")

    assert secrets_of(spec, environ) == {
        "Bearer hunter2hunter2": "Authorization",
        "hunter2hunter2": "ISSUES_TOKEN",
    }


@pytest.mark.parametrize(
    "name",
    ["GITHUB_TOKEN", "client_secret", "PGPASSWORD", "ApiKey", "AUTH", "COOKIE_X", "SENTRY_DSN"],
)
def test_literals_under_secret_names_are_secret(name: str) -> None:
    secrets = secrets_of(stdio(env=((name, "literal-value"), ("MODE", "production"))), {})

    assert secrets == {"literal-value": name}


def test_every_header_value_is_secret_with_and_without_its_scheme() -> None:
    assert secrets_of(http(X="Custom 0123456789"), {}) == {
        "Custom 0123456789": "X",
        "0123456789": "X",
    }


def test_what_a_url_keeps_to_itself_is_secret() -> None:
    spec = http("https://user:password1@example.com/mcp?key=0123456789&b=1")

    assert set(secrets_of(spec, {})) == {
        "user:password1",
        "password1",
        "key=0123456789&b=1",
        "0123456789",
    }
    assert secrets_of(http("https://[broken"), {}) == {"https://[broken": "url"}


def test_arguments_after_a_secret_flag_are_secret() -> None:
    args = ("--api-key", "0123456789", "--auth-token=abcdefghij", "--mode", "production")

    assert secrets_of(stdio(args=args), {}) == {"0123456789": "api-key", "abcdefghij": "auth-token"}


def test_what_is_secret_does_not_pass_the_redactor() -> None:
    environ = {"ISSUES_TOKEN": "hunter2hunter2"}
    secrets = secrets_of(http(Authorization="Bearer ${ISSUES_TOKEN}"), environ)

    assert redact("401 for hunter2hunter2", secrets) == "401 for [secret:ISSUES_TOKEN]"


def test_a_path_is_written_as_people_read_it() -> None:
    assert dotted(("toolboxes", "dev", "args", 1)) == "toolboxes.dev.args[1]"
    assert dotted(("headers", "X.Y z")) == 'headers["X.Y z"]'
    assert dotted(("env", "K"), "mcpServers.fs") == "mcpServers.fs.env.K"


@given(TRICKY, VALUES)
def test_text_behind_the_last_brace_is_read_as_any_other(text: str, values: dict[str, str]) -> None:
    whole = expand(f"{text}|}}", values).text
    if "${" not in text.rpartition("}")[2].replace("$${", ""):
        assert expand(f"{text}|", values).text == whole[:-1]


@pytest.mark.parametrize("text", ["${A:-", "${A:-$", "${", "$${", "${A"])
def test_a_text_full_of_unfinished_references_is_read_in_one_pass(text: str) -> None:
    long = text * 200_000  # hours, if each of them were searched to the end

    assert expand(long, ENVIRON).text == long.replace("$${", "${")
    assert references(long) == ()
    assert doubtful(long) == (text != "$${")


def test_many_long_values_do_not_fill_the_memory() -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("x", ("${A}" * 100_000,)))
    environ = {"A": "x" * 100_000}

    assert len(expand("${A}" * 100_000, environ).text) <= 1 << 20
    with pytest.raises(Unexpandable, match="too long values"):
        expand_target(spec, environ)


@pytest.mark.parametrize(
    "args",
    [
        ("run", "-e", "API_TOKEN=s3cret-value", "image"),
        ("run", "--env=API_TOKEN=s3cret-value", "image"),
        ("-c", "API_TOKEN='s3cret-value' exec server"),
        ("--header", "Authorization: Bearer s3cret-value"),
        ("--from", "git+https://s3cret-value@example.com/a", "server"),
        ("--index-url", "https://ada:s3cret-value@example.com/simple", "server"),
        ("postgres://ada:s3cret-value@localhost/db",),
        ("https://example.com/mcp?api_key=s3cret-value&region=europe-west",),
    ],
)
def test_literal_secrets_inside_of_arguments_are_masked(args: tuple[str, ...]) -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("x", args))

    masked = redact(" ".join(args), secrets_of(spec, {}))

    assert "s3cret-value" not in masked
    assert "[secret:" in masked


@pytest.mark.parametrize(
    "args",
    [
        ("run", "-e", "LOG_LEVEL=debugging-all", "image"),
        ("ssh://somebody@example.com/a", "--header", "Accept: application/json"),
        ("https://example.com/mcp?region=europe-west",),
    ],
)
def test_arguments_that_are_no_secrets_are_shown(args: tuple[str, ...]) -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("x", args))

    assert redact(" ".join(args), secrets_of(spec, {})) == " ".join(args)
