"""`login`: each thing that can go wrong has a sentence, a next step and a code; nothing hangs, and Ctrl-C ends it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mcp_workbench.core.error_codes import CODES
from tests.faults.test_surroundings import meddling
from tests.kit.authorization_server.person import sign_in
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import Done, run_command, typed
from tests.kit.config import config_file
from tests.kit.forked import Streams, command
from tests.kit.shared import SHORT
from tests.kit.sign_in_server import (
    METADATA,
    RESOURCE_METADATA,
    SIGN_INS,
    Act,
    Answer,
    Asked,
    Gate,
    SignInServer,
    browser,
    sign_in_server,
)
from tests.kit.terminal import terminal

pytestmark = pytest.mark.usefixtures("forked_commands")

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?\S+")


class Place:
    """A configuration with one server, and commands there."""

    def __init__(self, folder: Path, url: str, **auth: Any) -> None:
        self.folder = folder
        self.config = config_file(folder, {"p": {"url": url, "auth": auth}})
        self.env = {**browser(), "MCP_WORKBENCH_HOME": str(folder / "home")}

    def run(self, *words: str, **env: str) -> Done:
        argv = [*words, "--config", str(self.config)]
        return typed(argv, self.folder, Streams(), {**self.env, **env})

    def login(self, *words: str, **env: str) -> Done:
        return self.run("login", "dev/p", *words, **env)

    def call(self, **env: str) -> Done:
        return self.run("call", "dev/p/whoami", **env)


@pytest.fixture
def server() -> Generator[SignInServer]:
    with sign_in_server() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: SignInServer) -> Place:
    return Place(tmp_path, server.url)


def failed(done: Done, code: str, *texts: str) -> None:
    """It failed with this code, which `explain` knows, and these texts; one of them is the next step."""
    assert done.status in (1, 4), done
    assert code in done.err, done.err
    assert code in CODES
    for text in texts:
        assert text in done.err, done.err
    assert "canary" not in done.err.replace("/authorize?", "")


def test_every_code_of_sign_ins_is_explained(tmp_path: Path) -> None:
    codes = [code for code in CODES if code.startswith("WB-AUTH")]
    assert len(codes) >= 13
    for code in codes:
        assert run_command("explain", code, cwd=tmp_path).status == 0
        assert CODES[code].remedy


# The person


def test_a_declined_consent(place: Place, server: SignInServer) -> None:
    server.acts["/authorize"] = server.denied

    failed(place.login(), "WB-AUTH-002", "declined", "run the command again and allow access")


def test_the_wrong_account(place: Place, server: SignInServer) -> None:
    assert place.login().status == 0
    server.acts["/mcp"] = lambda asked: Answer(403) if asked.authorization else None

    done = place.call()

    failed(done, "WB-AUTH-012", "refuses this account (HTTP 403)", "login dev/p` with another")


def test_nobody_comes_in_time(place: Place) -> None:
    began = time.monotonic()
    done = place.login("--no-browser", "--timeout", "1")

    assert ADDRESS.search(done.err)
    failed(done, "WB-AUTH-007", "nobody signed in within 1 s", "start again")
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("browser", ["/nowhere/browser", "false", "", " ", 'a "quote'])
def test_no_browser_is_no_failure_but_told(place: Place, browser: str) -> None:
    env = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "WSL_DISTRO_NAME": "", "BROWSER": browser}
    done = place.login("--timeout", "1", **env)

    assert "WB-AUTH-009" in done.err
    assert "use --no-browser" in done.err
    failed(done, "WB-AUTH-007", "start again")


def test_a_browser_that_never_ends_counts_as_one(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "browser"
    script.write_text("#!/bin/sh\nexec sleep 5\n")
    script.chmod(0o755)
    done = place.login("--timeout", "1", BROWSER=str(script))

    assert "WB-AUTH-009" not in done.err


# The authorization server


def refused(status: int, **error: str) -> Act:
    return lambda asked: Answer(status, dict(error))


def test_a_registration_that_was_forgotten_is_made_anew(place: Place, server: SignInServer) -> None:
    assert place.login().status == 0
    server.clients.clear()
    server.end_tokens()

    failed(place.call(), "WB-AUTH-012", "does not know this program any more", "login dev/p")
    assert place.login().status == 0
    assert server.count("/register") == 2
    assert place.call().status == 0


def test_a_registration_that_has_expired_is_made_anew(place: Place, server: SignInServer) -> None:
    def act(asked: Asked) -> Answer:
        server.clients.add("client-9")
        given = {"client_id": "client-9", "client_secret": server.secret("client secret")}
        return Answer(201, {**given, "client_secret_expires_at": time.time() + 1})

    server.acts["/register"] = act
    assert place.login().status == 0
    eventually(lambda: time.time() > registered_until(place) + 0.1, "it has expired")
    del server.acts["/register"]

    assert place.login().status == 0
    assert server.count("/register") == 2
    assert server.count("/token", grant_type="refresh_token") == 0  # it was not even asked about


def registered_until(place: Place) -> float:
    [path] = Path(place.env["MCP_WORKBENCH_HOME"]).glob("credentials/client-*.json")
    return json.loads(path.read_text())["expires_at"]


def test_a_server_that_registers_nobody(place: Place, server: SignInServer) -> None:
    del server.metadata["registration_endpoint"]
    failed(place.login(), "WB-AUTH-003", "does not register clients", '"auth": {"clientId"')
    server.metadata["registration_endpoint"] = f"{server.origin}/register"
    server.acts["/register"] = refused(403, error="invalid_client_metadata")
    failed(place.login(), "WB-AUTH-003", "refused to register", "invalid_client_metadata")


@pytest.mark.parametrize("path", [RESOURCE_METADATA, METADATA, "/register", "/token"])
def test_an_authorization_server_with_a_fault(
    place: Place, server: SignInServer, path: str
) -> None:
    server.acts[path] = lambda _: Answer(503)

    failed(place.login(), "WB-AUTH-004", "HTTP 503", "try again later")


@pytest.mark.parametrize("path", ["/mcp", RESOURCE_METADATA, METADATA, "/register", "/token"])
def test_an_authorization_server_that_hangs(place: Place, server: SignInServer, path: str) -> None:
    gate = server.acts[path] = Gate()
    began = time.monotonic()
    try:
        done = place.login(**SHORT)
    finally:
        gate.open()

    failed(done, "WB-AUTH-004", "no answer within 1.5 s", "check the network, and try again")
    assert time.monotonic() - began < PATIENCE


def test_an_authorization_server_that_is_down(
    place: Place, server: SignInServer, unused_port: int
) -> None:
    origin = f"http://127.0.0.1:{unused_port}"
    server.resource["authorization_servers"] = [origin]
    other = Place(place.folder, server.url, allowedOrigins=[origin])

    failed(other.login(), "WB-AUTH-004", "connection refused", "check the network, and try again")


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_no_network(tmp_path: Path) -> None:
    place = Place(tmp_path, "https://no-such-host.invalid/mcp")

    failed(place.login(), "WB-AUTH-004", "can't resolve no-such-host.invalid", "check the network")


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "another resource": (
        {"resource": "https://other.example/mcp"},
        {},
        ("is for https://other.example/mcp", "correct 'url', or report it"),
    ),
    "another issuer": (
        {},
        {"issuer": "https://other.example"},
        ("that of another issuer, https://other.example", "report it"),
    ),
    "no PKCE": ({}, {"code_challenge_methods_supported": ["plain"]}, ("S256", "report it")),
    "no endpoint": ({}, {"authorization_endpoint": ""}, ("no sign-in with a browser", "--device")),
    "no object": ({"resource": 7}, {}, ("can't be used", "report it")),
    "an address that is none": ({}, {"token_endpoint": "javascript:alert(1)"}, ("is none",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_metadata_that_does_not_match(place: Place, server: SignInServer, name: str) -> None:
    resource, metadata, texts = WRONG[name]
    server.resource |= resource
    server.metadata |= metadata

    failed(place.login(), "WB-AUTH-005", *texts)


def test_an_issuer_without_metadata(place: Place, server: SignInServer) -> None:
    server.acts[METADATA] = lambda _: Answer(404)

    failed(place.login(), "WB-AUTH-005", "publishes no metadata", "'auth.issuer'", "report it")


def test_a_private_issuer(place: Place, server: SignInServer) -> None:
    server.resource["authorization_servers"] = ["http://127.0.0.1:1/"]

    failed(place.login(), "WB-AUTH-010", "blocked_address", '"allowedOrigins"')


def test_a_server_that_wants_no_login(place: Place, server: SignInServer) -> None:
    server.acts["/mcp"] = lambda _: Answer(200)

    failed(place.login(), "WB-AUTH-001", "it asks for no sign-in", "check --connect")


@pytest.mark.parametrize("status", [200, 400])
def test_a_code_that_is_refused(place: Place, server: SignInServer, status: int) -> None:
    server.acts["/token"] = refused(status, error="invalid_grant", error_description="too late")

    failed(place.login(), "WB-AUTH-006", "gave no token: sign in again (too late)")


def test_a_page_instead_of_a_token(place: Place, server: SignInServer) -> None:
    server.acts["/token"] = lambda _: Answer(403, "<html>the proxy of the office")

    failed(place.login(), "WB-AUTH-004", "HTTP 403", "a proxy on the way", "try again later")


def test_a_port_that_is_taken(tmp_path: Path, server: SignInServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place = Place(tmp_path, server.url, redirectPort=port)
        done = place.login()

    failed(done, "WB-AUTH-008", f"port {port}", "in use", "change 'auth.redirectPort'")


# The clock


AHEAD = "SECONDS_AHEAD"  # the variable with what is added to the time
CLOCK = f"""import os, time
real = time.time
time.time = lambda: real() + float(os.environ.get('{AHEAD}', 0))
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose clock is wrong. It is one for all tests: Python is loaded once for each."""
    return meddling(tmp_path_factory.mktemp("clock"), CLOCK)


@pytest.mark.parametrize("minutes", [-60, 60])
def test_a_clock_that_is_an_hour_off(
    place: Place, server: SignInServer, clock: dict[str, str], minutes: int
) -> None:
    """It is told, and nothing else goes wrong; nor does it when somebody sets the clock later."""
    off = {**clock, AHEAD: str(60 * minutes)}
    done = place.login(**off)

    assert done.status == 0, done.err
    word = "ahead" if minutes > 0 else "behind"
    assert f"clock of this machine is 60 minutes {word} (WB-AUTH-013): set it" in done.err
    assert place.call(**off).status == 0
    assert server.refreshes == 0
    assert place.call().status == 0  # set right: the token seems expired, or good for another hour
    server.end_tokens()
    assert place.call().status == 0
    assert place.call(**off).status == 0


def test_a_clock_that_is_right_is_not_mentioned(place: Place) -> None:
    assert "WB-AUTH-013" not in place.login().err


# A code on another device


def test_a_device_that_signs_in(place: Place, server: SignInServer) -> None:
    answers = iter(["authorization_pending", "slow_down", "", "503"])

    def act(asked: Asked) -> Answer | None:
        error = next(answers, "")
        if error == "503":
            return Answer(503)
        return Answer(400, {"error": error}) if error else None

    server.acts["/token"] = act
    done = place.login("--device")

    assert done.status == 0, done.err
    assert f"Open {server.origin}/activate on any device, and enter the code WDJB-MJHT" in done.err
    assert place.call().status == 0


def test_a_fault_of_the_network_does_not_end_the_wait_for_a_device(
    place: Place, server: SignInServer
) -> None:
    answers = iter([503, 429])
    server.acts["/token"] = lambda _: Answer(status) if (status := next(answers, 0)) else None

    assert place.login("--device").status == 0
    assert server.count("/token") == 3


@pytest.mark.parametrize(
    ("error", "code", "texts"),
    [
        ("access_denied", "WB-AUTH-002", ("declined on the other device", "run the command again")),
        ("expired_token", "WB-AUTH-007", ("not used in time", "run the command again")),
        ("invalid_grant", "WB-AUTH-006", ("gave no token", "sign in again")),
        ("invalid_client", "WB-AUTH-003", ("does not know this program", "sign in again")),
    ],
)
def test_a_device_that_does_not(
    place: Place, server: SignInServer, error: str, code: str, texts: tuple[str, ...]
) -> None:
    server.acts["/token"] = refused(400, error=error)

    failed(place.login("--device"), code, *texts)


def test_a_device_that_nobody_uses(place: Place, server: SignInServer) -> None:
    server.acts["/token"] = refused(400, error="authorization_pending")
    began = time.monotonic()

    done = place.login("--device", "--timeout", "1")

    failed(done, "WB-AUTH-007", "run the command again")
    assert time.monotonic() - began < PATIENCE


def test_no_device_flow(place: Place, server: SignInServer) -> None:
    del server.metadata["device_authorization_endpoint"]

    failed(place.login("--device"), "WB-AUTH-005", "no sign-in by device code", "--no-browser")


# A pasted address


def test_addresses_that_are_pasted(place: Place, server: SignInServer) -> None:
    argv = ("login", "dev/p", "--no-browser", "--config", str(place.config))
    with terminal(
        *argv, cwd=place.folder, env={**place.env, "TERM": "xterm"}, columns=2000
    ) as user:
        user.expect("paste the address that it ends at")
        address = ADDRESS.search(user.screen)
        assert address
        redirected = sign_in(address[0], follow=False)
        foreign = re.sub("state=[^&]*", "state=of-another-sign-in", redirected)
        other_issuer = re.sub(
            "iss=[^&]*", f"iss={quote('https://other.example', safe='')}", redirected
        )
        for wrong, said in (
            ("what is this", "paste the whole address"),
            (redirected.partition("?")[0] + "?", "belongs to another sign-in"),
            (foreign, "belongs to another sign-in"),
            (other_issuer, "does not come from"),
            (re.sub("code=[^&]*&", "", redirected), "has no code"),
        ):
            user.type(f"{wrong}\n")
            user.expect(said)
        user.type(f"{redirected}\n")
        user.expect("signed in")
        assert user.rest() == 0

    assert server.count("/token") == 1


def test_a_declined_consent_that_is_pasted(place: Place, server: SignInServer) -> None:
    server.acts["/authorize"] = server.denied
    argv = ("login", "dev/p", "--no-browser", "--config", str(place.config))
    with terminal(
        *argv, cwd=place.folder, env={**place.env, "TERM": "xterm"}, columns=2000
    ) as user:
        user.expect("paste the address that it ends at")
        address = ADDRESS.search(user.screen)
        assert address
        user.type(f"{sign_in(address[0], follow=False)}\n")
        user.expect("declined")
        assert user.rest() == 1


def test_without_a_terminal_the_redirect_is_waited_for(
    place: Place, server: SignInServer, tmp_path: Path
) -> None:
    with started(place, "--no-browser") as process:
        sign_in(shown_address(process))
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "dev/p: signed in" in out


# Ctrl-C


def started(place: Place, *words: str) -> subprocess.Popen[str]:
    argv = [*command(place.env), "login", "dev/p", *words, "--config", str(place.config)]
    return subprocess.Popen(
        argv,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def shown_address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if address := ADDRESS.search(line):
            return address[0]
    pytest.fail("no address was shown")


def listens(address: str) -> bool:
    port = re.search(r"redirect_uri=http%3A%2F%2F127.0.0.1%3A(\d+)", address)
    assert port
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port[1]))) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_nothing_left(place: Place, number: signal.Signals) -> None:
    with started(place, "--no-browser") as process:
        address = shown_address(process)
        assert listens(address)
        process.send_signal(number)
        began = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not listens(address)


@pytest.mark.parametrize("path", ["/mcp", METADATA, "/register", "/token"])
def test_ctrl_c_waits_for_nobody(place: Place, server: SignInServer, path: str) -> None:
    """Whatever it is waiting for: a document, its registration, the token."""
    gate = server.acts[path] = Gate()
    try:
        with started(place, "--no-browser") as process:
            if path == "/token":
                address = shown_address(process)
                browser = threading.Thread(target=visit, args=(address,), daemon=True)
                browser.start()
            gate.wait()
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            _, err = process.communicate(timeout=PATIENCE)
    finally:
        gate.open()
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert "Traceback" not in err


def visit(address: str) -> None:
    try:
        sign_in(address)
    except OSError:
        return  # the page went away with the command


def test_ctrl_c_at_a_terminal(place: Place) -> None:
    argv = ("login", "dev/p", "--no-browser", "--config", str(place.config))
    with terminal(
        *argv, cwd=place.folder, env={**place.env, "TERM": "xterm"}, columns=2000
    ) as user:
        user.expect("paste the address that it ends at")
        user.type("\x03")
        assert user.rest() == 130
    assert "Traceback" not in user.screen


def test_logout_without_an_answer_forgets_all_the_same(place: Place, server: SignInServer) -> None:
    assert place.login().status == 0
    gate = server.acts["/revoke"] = Gate()
    try:
        done = place.run("logout", "dev/p", **SHORT)
    finally:
        gate.open()
    assert done.status == 0
    assert "revoked" not in done.out
    assert list(Path(place.env["MCP_WORKBENCH_HOME"]).glob(SIGN_INS)) == []
