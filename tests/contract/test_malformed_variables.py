"""A `${` that begins no variable is named while serving: in the toolbox, in the log, in the reason."""

import sys
from pathlib import Path

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import text

FORMS = "write ${NAME} or ${NAME:-default}; $${ is a literal ${"
PLACE = "toolboxes.dev.mcpServers.odd"


def test_the_opened_toolbox_and_the_log_name_it(tmp_path: Path) -> None:
    odd = {**entry(), "env": {"A": "${HOME", "B": "${1X}", "C": "plain", "D": "a ${b c"}}
    with PipeHost(config_file(tmp_path, {"odd": odd, "even": entry()})) as host:
        host.handshake()
        opened = host.open()

    passed_on = f"is no variable and is passed on as it is; {FORMS}"
    warnings = [
        f"dev/odd: '${{HOME' in {PLACE}.env.A {passed_on}",
        f"dev/odd: '${{1X}}' in {PLACE}.env.B {passed_on}",
        f"dev/odd: a '${{' in {PLACE}.env.D {passed_on}",
    ]
    assert opened["warnings"] == warnings
    assert opened["servers_connected"] == 2
    for warning in warnings:
        assert warning in host.stderr


def test_the_reason_of_a_failure_names_it(tmp_path: Path) -> None:
    odd = {"command": sys.executable, "args": ["-c", "raise SystemExit('no such file')", "${HOME"]}
    with PipeHost(config_file(tmp_path, {"odd": odd})) as host:
        host.handshake()
        answer = host.use("odd", "echo")

    assert "stderr: no such file; " in text(answer)
    assert f"'${{HOME' in {PLACE}.args[2] is no variable" in text(answer)
