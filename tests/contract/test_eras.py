"""Any host with any server: openings, stamps, and what each end sees of the other's era."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import ENVELOPE, META, MODERN, json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SERVERS: dict[str, Any] = {
    **{
        f"rev{index}": entry(f"rev={revision}", era="auto") for index, revision in enumerate(LEGACY)
    },
    "modern": entry("modern", era="auto"),
    "dual": entry("dual", era="auto"),
    "pinned_legacy": entry("dual", era="legacy"),
    "pinned_modern": entry("dual", era="modern"),
    "dies_on_probe": entry("die_on_probe", era="auto"),
}
IS_MODERN = {"modern", "pinned_modern"}


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    with PipeHost(config_file(tmp_path_factory.mktemp("legacy"), SERVERS)) as host:
        host.initialize()
        yield host


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    with PipeHost(config_file(tmp_path_factory.mktemp("modern"), SERVERS), modern=True) as host:
        host.result("tools/list")
        yield host


@pytest.fixture(scope="module", params=["legacy", "modern"])
def host(request: pytest.FixtureRequest) -> PipeHost:
    """One of both, for questions that leave no trace."""
    return request.getfixturevalue(request.param)


def without_envelope(host: PipeHost, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a modern host is told that sends this as it stands."""
    id = f"without envelope {len(host.lines)}"
    host.send({"id": id, "method": method, "params": params})
    return host.answer(id)["error"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path, {"s": entry()})


@pytest.mark.fault("F40")
@pytest.mark.parametrize("server", SERVERS)
def test_every_pair_lists_and_calls(host: PipeHost, server: str) -> None:
    tools = host.open()["tools"]
    result = host.use(server, "echo", {"n": 1}, _meta={"vendor/x": 1})

    assert [tool["name"] for tool in tools if tool["source_server"] == server][:2] == [
        "echo",
        "hang",
    ]
    heard = json_text(result)
    assert (heard["name"], heard["arguments"]) == ("echo", {"n": 1})
    assert heard["_meta"]["vendor/x"] == 1


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_sees_the_envelope_of_its_own_era(host: PipeHost, server: str) -> None:
    meta = json_text(host.use(server, "echo", {}, _meta={"a": 1}))["_meta"]

    if server in IS_MODERN or (server == "dual" and host.modern):
        assert meta[META + "protocolVersion"] == MODERN
        assert meta[META + "clientInfo"]["name"] == "mcp-workbench"
        assert meta[META + "clientCapabilities"].keys() == {"extensions"}
    else:
        assert meta == {"a": 1}


@pytest.mark.parametrize("server", SERVERS)
def test_a_host_gets_a_result_of_its_own_era(host: PipeHost, server: str) -> None:
    result = host.use(server, "echo")

    if host.modern:
        assert result["resultType"] == "complete"
    else:
        assert list(result) == ["content"]


@pytest.mark.parametrize("server", ["rev3", "modern"])
@pytest.mark.parametrize("meta", ["null", "[]", '{"x":1}'])
def test_an_odd_result_reaches_a_host_of_either_era(host: PipeHost, server: str, meta: str) -> None:
    odd = '{"content":[],"n":12345678901234567890,"f":1.0,"_meta":' + meta + "}"

    result = host.use(server, "result", {"result": odd})

    assert (result["content"], result["n"]) == ([], 12345678901234567890)
    assert b"1.0" in host.lines[-1]
    if host.modern:
        assert result["resultType"] == "complete"


def test_a_result_of_a_kind_that_we_do_not_carry_is_an_error_that_says_so(host: PipeHost) -> None:
    result = host.use("modern", "result", {"result": json.dumps({"resultType": "task"})})

    [text] = texts(result)
    assert result["isError"] is True
    assert text.startswith("[dev/modern/result] Error: ")
    assert "task" in text


@pytest.mark.parametrize(("server", "passes"), [("rev3", True), ("modern", False)])
@pytest.mark.parametrize("code", [-32020, -32022])
def test_a_server_s_complaint_about_our_own_request_is_not_taken_for_the_host_s(
    host: PipeHost, server: str, code: int, *, passes: bool
) -> None:
    """In the modern era these codes speak of the hop; a host would look for its own fault."""
    error = json.dumps({"code": code, "message": "not like this"})
    told = host.error(
        "tools/call",
        {
            "name": "use_tool",
            "arguments": {
                "tool": {"toolbox": "dev", "server": server, "tool": "error"},
                "arguments": {"error": error},
            },
        },
    )

    assert told["code"] == (code if passes else -32603)
    assert "not like this" in told["message"]


def test_where_hosts_are_told_apart_our_own_lists_are_private(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"s": entry()}, http={"token": "${SECRET}"})
    with PipeHost(file, modern=True, env={"SECRET": "x" * 32}) as host:
        scopes = [host.result(method)["cacheScope"] for method in ("tools/list", "server/discover")]

    assert scopes == ["private", "private"]


def test_our_own_answers_are_of_the_host_s_era(host: PipeHost) -> None:
    answers = [
        host.result("tools/list"),
        host.call("open_toolbox", {"toolbox_name": "dev"}),
        host.call("use_tool", {}),
    ]

    for answer in answers:
        if host.modern:
            assert answer["resultType"] == "complete"
            assert answer["_meta"][META + "serverInfo"]["name"] == "mcp-workbench"
        else:
            assert not answer.keys() & {"resultType", "ttlMs", "cacheScope"}
    if host.modern:
        assert answers[0]["cacheScope"] == "public"
        assert answers[0]["ttlMs"] > 0


# Meeting servers


def test_a_server_that_dies_of_the_probe_costs_one_extra_start(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = entry("die_on_probe", era="auto", env={"PIDFILE": str(pids)})
    with PipeHost(config_file(tmp_path, {"s": server}), modern=True) as host:
        assert json_text(host.use("s", "echo", {"a": 1}))["arguments"] == {"a": 1}
        assert len(pids_in(pids)) == 2

        host.use("s", "die")
        host.use("s", "echo")

        assert len(pids_in(pids)) == 3  # what was found out is remembered


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("flag", ["quiet_probe", "late_probe"])
def test_a_server_that_is_silent_to_the_probe_is_greeted_too(tmp_path: Path, flag: str) -> None:
    with PipeHost(config_file(tmp_path, {"s": entry(flag, era="auto")}), modern=True) as host:
        seen = json_text(host.use("s", "stats"))

    assert seen["methods"][:2] == ["server/discover", "initialize"]
    assert seen["era"] == ("modern" if flag == "late_probe" else "legacy")


@pytest.mark.usefixtures("short_deadlines")
def test_a_server_that_starts_slowly_is_started_again_and_probed_alone(tmp_path: Path) -> None:
    """It had both requests to read, and takes the connection for a legacy one from then on."""
    pids, late = tmp_path / "pids", tmp_path / "late"
    server = entry("dual", f"late_probe={late}", era="auto", env={"PIDFILE": str(pids)})
    with PipeHost(config_file(tmp_path, {"s": server}), modern=True) as host:
        seen = json_text(host.use("s", "stats"))

    assert (seen["era"], len(pids_in(pids))) == ("modern", 2)
    assert late.exists()
    assert "initialize" not in seen["methods"]


# The era of the host comes first


@pytest.mark.parametrize("flag", ["legacy", "dual", "quiet_probe", "die_on_probe"])
def test_a_server_of_a_legacy_host_is_greeted_and_not_probed(tmp_path: Path, flag: str) -> None:
    pids = tmp_path / "pids"
    server = entry(flag, era="auto", env={"PIDFILE": str(pids)})
    with PipeHost(config_file(tmp_path, {"s": server})) as host:
        host.initialize()

        seen = json_text(host.use("s", "stats"))

    assert seen["methods"][0] == "initialize"
    assert "server/discover" not in seen["methods"]
    assert seen["era"] == "legacy"
    assert len(pids_in(pids)) == 1


def test_a_modern_server_of_a_legacy_host_is_greeted_once_and_that_is_remembered(
    tmp_path: Path,
) -> None:
    with PipeHost(config_file(tmp_path, {"s": entry("modern", era="auto")})) as host:
        host.initialize()
        first = json_text(host.use("s", "stats"))
        host.use("s", "die")
        second = json_text(host.use("s", "stats"))

    assert first["methods"][:2] == ["initialize", "server/discover"]
    assert second["methods"][0] == "server/discover"
    assert first["era"] == second["era"] == "modern"


@pytest.mark.usefixtures("short_deadlines")
def test_a_server_that_is_silent_to_initialize_is_probed_too(tmp_path: Path) -> None:
    server = entry("modern", "quiet_greeting", era="auto")
    with PipeHost(config_file(tmp_path, {"s": server})) as host:
        host.initialize()

        seen = json_text(host.use("s", "stats"))

    assert seen["methods"][:2] == ["initialize", "server/discover"]
    assert seen["era"] == "modern"


def test_a_modern_server_that_crashed_once_is_met_again_as_modern(tmp_path: Path) -> None:
    server = entry("modern", f"crash_once={tmp_path / 'mark'}", era="auto")
    with PipeHost(config_file(tmp_path, {"s": server})) as host:
        host.initialize()
        host.use("s", "echo")  # may fail: its server has just crashed

        assert json_text(host.use("s", "echo", {"a": 1}))["arguments"] == {"a": 1}


def test_a_server_that_has_changed_its_era_is_met_anew(tmp_path: Path) -> None:
    server = entry(f"later_modern={tmp_path / 'mark'}", era="auto")
    with PipeHost(config_file(tmp_path, {"s": server}), modern=True) as host:
        assert json_text(host.use("s", "stats"))["era"] == "legacy"
        host.use("s", "die")
        host.use("s", "echo")  # greeted as it was known: this one may fail

        assert json_text(host.use("s", "stats"))["era"] == "modern"


# Openings


@pytest.mark.parametrize("revision", LEGACY)
def test_initialize_takes_every_legacy_revision(config: Path, revision: str) -> None:
    with PipeHost(config) as host:
        result = host.initialize(revision)

        assert result["protocolVersion"] == revision
        assert result["serverInfo"] == {"name": "mcp-workbench", "version": "0.11.0"}
        assert json_text(host.use("s", "echo"))["arguments"] == {}


@pytest.mark.parametrize("revision", ["2099-01-01", MODERN, ""])
def test_any_other_revision_is_answered_with_the_newest_legacy_one(
    config: Path, revision: str
) -> None:
    with PipeHost(config) as host:
        assert host.initialize(revision)["protocolVersion"] == "2025-11-25"


def test_discover_says_what_we_are_and_fixes_nothing(config: Path) -> None:
    with PipeHost(config) as host:
        found = host.result("server/discover", {"_meta": ENVELOPE})

        assert found["supportedVersions"] == [MODERN]
        assert found["resultType"] == "complete"
        assert "tools" in found["capabilities"]
        assert found["_meta"][META + "serverInfo"] == {"name": "mcp-workbench", "version": "0.11.0"}
        assert "open_toolbox" in found["instructions"]
        assert found["cacheScope"] == "public"
        assert found["ttlMs"] >= 0
        assert host.initialize()["protocolVersion"] == "2025-11-25"
        assert "resultType" not in host.result("tools/list")


@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_discover_gives_the_instructions_of_its_mode(tmp_path: Path, mode: str) -> None:
    file = config_file(tmp_path, {"a": entry(), "b": entry()}, toolMode=mode)
    with PipeHost(file, modern=True) as host:
        told = host.result("server/discover")["instructions"]

    assert "- dev (2 servers): Development toolbox" in told
    example = json.loads(told[told.index("{\n") :])
    if mode == "proxy":
        assert "Use `open_toolbox` to connect to a toolbox, then `use_tool`" in told
        assert list(example) == ["tool", "arguments"]
        assert example["tool"] | {"tool": ""} == {"toolbox": "dev", "server": "a", "tool": ""}
    else:
        assert "Tools are named {toolbox}__{server}__{tool}; `open_toolbox` lists" in told
        assert "search_tools" not in told
        assert example["name"].startswith("dev__a__")


def test_a_toolbox_without_servers_has_none_in_the_instructions(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {}), modern=True) as host:
        assert "- dev (0 servers)" in host.result("server/discover")["instructions"]


def test_initialize_in_a_modern_conversation_is_told_the_modern_versions(modern: PipeHost) -> None:
    error = without_envelope(modern, "initialize", {"protocolVersion": "2025-11-25"})

    assert error["code"] == -32022
    assert error["data"] == {"supported": [MODERN], "requested": "2025-11-25"}


def test_a_modern_envelope_in_a_legacy_conversation_is_refused(legacy: PipeHost) -> None:
    assert legacy.error("tools/list", {"_meta": ENVELOPE})["code"] == -32600
    assert len(legacy.result("tools/list")["tools"]) == 3


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_a_modern_request_without_a_required_key_names_it(modern: PipeHost, missing: str) -> None:
    meta = {key: value for key, value in ENVELOPE.items() if key != META + missing}

    error = without_envelope(modern, "tools/list", {"_meta": meta})

    assert error["code"] == -32602
    assert missing in error["message"]


@pytest.fixture(scope="module")
def unopened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """What is refused opens nothing: after all tests it can still be opened."""
    with PipeHost(config_file(tmp_path_factory.mktemp("unopened"), {"s": entry()})) as host:
        yield host
        assert host.initialize()["protocolVersion"] == "2025-11-25"


def test_a_request_before_any_opening_is_told_both_ways(unopened: PipeHost) -> None:
    error = unopened.error("tools/list")

    assert error["code"] == -32602
    assert "initialize" in error["message"]
    assert MODERN in error["message"]


@pytest.mark.parametrize(
    "meta",
    [
        5,
        [],
        {**ENVELOPE, META + "protocolVersion": 5},
        {**ENVELOPE, META + "clientCapabilities": []},
    ],
)
def test_an_envelope_of_the_wrong_shape_is_refused(unopened: PipeHost, meta: Any) -> None:
    assert unopened.error("tools/list", {"_meta": meta})["code"] == -32602


def test_a_modern_version_that_we_do_not_serve_is_told_which_we_do(unopened: PipeHost) -> None:
    error = unopened.error(
        "tools/list", {"_meta": {**ENVELOPE, META + "protocolVersion": "2031-01-01"}}
    )

    assert error["code"] == -32022
    assert error["data"] == {"supported": [MODERN], "requested": "2031-01-01"}


def test_an_offer_of_the_wrong_shape_is_answered_with_the_newest_revision(config: Path) -> None:
    with PipeHost(config) as host:
        assert host.result("initialize", {"protocolVersion": 5})["protocolVersion"] == "2025-11-25"


def test_an_envelope_may_be_spelled_with_any_escapes(config: Path) -> None:
    """PHP, for one, writes every slash as `\\/`."""
    with PipeHost(config) as host:
        line = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
        )
        host.write(line.replace("/", "\\/").encode() + b"\n")

        assert host.answer(1)["result"]["resultType"] == "complete"


def test_ping_is_answered_in_legacy_and_unknown_in_modern(
    legacy: PipeHost, modern: PipeHost
) -> None:
    assert legacy.result("ping") == {}
    assert modern.error("ping")["code"] == -32601


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result", "roots/list", "no/such"])
def test_a_method_that_we_do_not_offer_is_not_found(host: PipeHost, method: str) -> None:
    assert host.error(method)["code"] == -32601


def test_a_cursor_that_we_never_gave_is_refused(host: PipeHost) -> None:
    assert host.error("tools/list", {"cursor": "x"})["code"] == -32602


def test_a_server_s_questions_are_refused_and_its_pings_answered(host: PipeHost) -> None:
    for method in ("ping", "roots/list"):
        host.use("rev3", "ask", {"method": method})
    pong, refusal = json_text(host.use("rev3", "stats"))["answers"][-2:]

    assert pong == {"jsonrpc": "2.0", "id": "q1", "result": {}}
    assert refusal["error"]["code"] == -32601
    assert refusal["id"] == "q1"


def test_a_batch_is_taken_apart_where_the_revision_knows_it(config: Path, legacy: PipeHost) -> None:
    batch = (
        b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]\n'
    )
    with PipeHost(config) as host:
        host.initialize("2025-03-26")
        host.write(batch)
        assert host.answer("a")["result"] == host.answer("b")["result"] == {}
        host.write(b'[{"jsonrpc":"2.0","id":"a","method":"ping"},\n')
        assert host.answer(None)["error"]["code"] == -32700
    legacy.write(batch)
    assert legacy.answer(None)["error"]["code"] == -32600
