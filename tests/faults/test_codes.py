"""Each cause has its own code, and none is told as another: least of all as an unknown tool."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.scene import AT_ONCE, failure, faulty, line_of
from tests.kit.clock import takes_at_most
from tests.kit.config import entry, url_entry
from tests.kit.results import CODE, json_text
from tests.kit.servers.bad_http import bad_http_in_a_thread

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.mark.fault("F36")
def test_a_full_server_is_busy_and_none_of_its_tools_is_unknown(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry()}, limits={"callsPerServer": 4}) as host:
        host.use("bad", "echo")
        held = [host.begin_use("bad", "hold", {"key": str(n)}) for n in range(4)]
        for tool in ("echo", "hold", "stats"):
            with takes_at_most(AT_ONCE):
                told = failure(host.use("bad", tool), "overloaded")
            assert "limits.callsPerServer" in told
        failure(host.use("bad", "nosuchtool"), "unknown_tool")
        for id in held:
            host.notify("notifications/cancelled", {"requestId": id})
        assert json_text(host.use("bad", "echo"))["name"] == "echo"


@pytest.mark.fault("F36")
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_every_cause_has_its_own_code(tmp_path: Path, mode: str) -> None:
    with bad_http_in_a_thread() as bad:
        servers: dict[str, Any] = {
            "fine": entry("floods"),
            "late": entry(timeout=0.5),
            "gone": {"command": "no-such-command-anywhere"},
            "mute": entry("hang", connectTimeout=0.5),
            "unset": entry(env={"TOKEN": "${WB_NOT_SET}"}),
            "limited": url_entry(bad.url("/s429")),
            "locked": url_entry(bad.url("/s401")),
            "page": url_entry(bad.url("/html")),
            "bomb": url_entry(bad.url("/gzbomb")),
            "refused": url_entry("http://127.0.0.1:1/mcp"),
        }
        expected = {
            ("fine", "nosuchtool"): "unknown_tool",
            ("late", "hang"): "timeout",
            ("fine", "deep"): "protocol_error",
            ("fine", "die"): "server_exited",
            ("nobody", "echo"): "unknown_server",
            ("gone", "echo"): "connect_failed",
            ("mute", "echo"): "connect_failed",
            ("unset", "echo"): "connect_failed",
            ("refused", "echo"): "connect_failed",
            ("limited", "echo"): "rate_limited",
            ("locked", "echo"): "needs_login",
            ("page", "echo"): "protocol_error",
            ("bomb", "echo"): "too_large",
        }
        with faulty(tmp_path, servers, toolMode=mode) as host:
            for (server, tool), code in expected.items():
                arguments: dict[str, Any] = {"n": 5000}
                if mode == "dynamic":
                    result = host.call(f"dev__{server}__{tool}", arguments)
                else:
                    result = host.use(server, tool, arguments)
                failure(result, code)
            elsewhere = {"tool": {"toolbox": "nobox", "server": "fine", "tool": "echo"}}
            failure(host.call("use_tool", elsewhere), "unknown_toolbox")
            failure(host.call("use_tool", {"tool": "fine"}), "invalid_parameters")
            failure(host.call("open_toolbox", {"toolbox_name": "nobox"}), "unknown_toolbox")


@pytest.mark.fault("F36", "F14")
def test_a_servers_own_error_is_the_servers_own(tmp_path: Path) -> None:
    error = b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32602,"message":"Unknown tool: x"}}'
    with faulty(tmp_path, {"bad": entry()}) as host:
        host.use("bad", "echo")
        id = host.begin_use("bad", "line", line_of(error))
        assert host.answer(id)["error"] == {"code": -32602, "message": "Unknown tool: x"}
        assert CODE not in str(host.use("bad", "fail")), "a result that says so itself"
