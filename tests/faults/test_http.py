"""Servers behind a URL that break, hang, lie or storm: one call pays, by name."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.upstream.health import pause_after
from mcp_workbench.upstream.http.event_streams import CONNECTS, SOONEST
from tests.faults.scene import AT_ONCE, LAG, Watched, failure, faulty
from tests.http_servers.test_faults_over_http import BROKEN
from tests.kit.clock import eventually, takes_at_most
from tests.kit.config import entry, url_entry
from tests.kit.results import CODE, RETRY, texts
from tests.kit.servers.bad_http import (
    MODES,
    BadHttp,
    Hung,
    Request,
    bad_http_in_a_thread,
    event,
    result,
)
from tests.kit.vitals import forget_peak, megabytes

pytestmark = pytest.mark.usefixtures("forked_commands")

ERAS = ("", "/modern")


def named(era: str, mode: str) -> str:
    return f"{era.strip('/') or 'legacy'}-{mode}"


def among_good(mode: str) -> Any:
    """Misbehave only where the call says `bad`; the others get their answers."""

    async def act(request: Request, out: Hung) -> None:
        text = request.body["params"]["arguments"]["text"]
        await (MODES[mode] if text == "bad" else MODES["interim"])(request, out)

    return act


def tired_once(bad: BadHttp, came: list[float]) -> Any:
    """Wants to be left alone for a second, and is then as good as any; `came` has when it was asked."""

    async def act(request: Request, out: Hung) -> None:
        came.append(time.monotonic())
        if len(came) == 1:
            await out.reply(429, b"<h1>no</h1>", "text/html", Retry_After="1")
        elif request.verb != "POST":
            await out.reply(405)
        else:
            await bad.good(request, out)

    return act


def tell(host: Watched, server: str, text: str = "hi") -> str:
    [said] = texts(host.use(server, "echo", {"text": text}))
    return said


@pytest.mark.fault("F24", "F26", "F27", "F30")
@pytest.mark.parametrize("era", ERAS)
def test_each_fault_costs_its_call_and_not_the_ten_beside_it(tmp_path: Path, era: str) -> None:
    with bad_http_in_a_thread() as bad:
        servers = {
            named(era, mode): url_entry(bad.on(f"{era}/{mode}/x", among_good(mode)))
            for mode in BROKEN
        }
        with faulty(tmp_path, servers) as host:
            assert "unavailable" not in host.open()
            for mode, (code, words, may_have_run) in BROKEN.items():
                server = named(era, mode)
                beside = [host.begin_use(server, "echo", {"text": str(n)}) for n in range(5)]
                faulted = host.begin_use(server, "echo", {"text": "bad"})
                beside += [host.begin_use(server, "echo", {"text": str(n)}) for n in range(5, 10)]
                with takes_at_most(AT_ONCE):
                    told = failure(host.outcome(faulted), code)

                assert words in told, mode
                assert told.endswith("may have run" if may_have_run else "did not run"), told
                if code == "rate_limited":  # which holds for all who come later
                    continue
                assert [texts(host.outcome(id)) for id in beside] == [[str(n)] for n in range(10)]


@pytest.mark.fault("F25")
def test_a_call_without_an_answer_ends_at_its_deadline_and_is_taken_back(tmp_path: Path) -> None:
    paths = {named(era, mode): f"{era}/{mode}" for era in ERAS for mode in ("hang", "drip")}
    with bad_http_in_a_thread() as bad:
        servers = {name: url_entry(bad.url(path), timeout=0.5) for name, path in paths.items()}
        with faulty(tmp_path, servers) as host:
            host.open()
            since = time.monotonic()
            with takes_at_most(0.75):
                ids = {name: host.begin_use(name, "echo") for name in paths}
                told = {name: failure(host.outcome(id), "timeout") for name, id in ids.items()}

            assert time.monotonic() - since >= 0.5
            for name, path in paths.items():
                assert told[name].startswith(f"[dev/{name}/echo] Error: timed out after 0.5 s")
                taken_back(bad, path, legacy=name.startswith("legacy"))


def taken_back(bad: BadHttp, path: str, *, legacy: bool) -> None:
    """The answer is not waited for any more, and a legacy server was told so before."""

    def asked(method: str) -> list[Request]:
        return [request for request in bad.calls(method) if request.path == path]

    eventually(lambda: path in bad.dropped, "the stream is closed")
    if legacy:
        [call], [cancel] = asked("tools/call"), asked("notifications/cancelled")
        assert cancel.body["params"]["requestId"] == call.body["id"]


@pytest.mark.fault("F22")
def test_no_server_can_make_us_storm(tmp_path: Path) -> None:
    async def ends_at_once(request: Request, out: Hung) -> None:
        await out.events(b"retry: 0\nid: 1\ndata:\n\n")

    async def never(request: Request, out: Hung) -> None:
        await out.reply(405)

    with bad_http_in_a_thread() as bad:
        bad.acts["GET /ends"] = ends_at_once
        bad.acts["GET /never"] = never
        bad.acts["GET /sse_id_end"] = ends_at_once
        servers = {
            "ends": url_entry(bad.url("/ends")),
            "never": url_entry(bad.url("/never")),
            "cut": url_entry(bad.url("/sse_id_end"), timeout=6 * SOONEST),
        }
        with faulty(tmp_path, servers) as host:
            assert tell(host, "ends") == tell(host, "never") == "hi"
            failure(host.use("cut", "echo"), "timeout")
            eventually(lambda: {"/ends", "/never"} <= {one.path for one in gets(bad)}, "it listens")
            paths = [request.path for request in gets(bad)]

        assert paths.count("/never") == 1, "405 means never"
        assert 1 <= paths.count("/ends") <= CONNECTS, "so many a minute"
        assert 1 <= paths.count("/sse_id_end") <= CONNECTS


def gets(bad: BadHttp) -> list[Request]:
    return [request for request in bad.seen if request.verb == "GET"]


@pytest.mark.fault("F23")
def test_a_forgotten_session_is_opened_again_once(tmp_path: Path) -> None:
    async def never(request: Request, out: Hung) -> None:
        await out.reply(404, b"no such session", "text/plain")

    with bad_http_in_a_thread() as bad:
        servers = {
            "forgets": url_entry(bad.url("/session/a")),
            "hopeless": url_entry(bad.on("/session/b", never)),
        }
        with faulty(tmp_path, servers) as host:
            assert tell(host, "forgets") == "hi"
            before = len(bad.calls("initialize"))
            bad.sessions.clear()
            bad.sessions |= {"x", "y"}  # as after a restart
            ids = [host.begin_use("forgets", "echo", {"text": str(n)}) for n in range(5)]
            assert [texts(host.outcome(id)) for id in ids] == [[str(n)] for n in range(5)]
            assert len(bad.calls("initialize")) == before + 1

            told = failure(host.use("hopeless", "echo"), "session_lost")
            assert told.endswith("did not run")
            assert len([call for call in bad.calls() if call.path == "/session/b"]) == 2


@pytest.mark.fault("F26")
def test_a_server_that_wants_to_be_left_alone_is_left_alone(tmp_path: Path) -> None:
    wanted = {"s429": 7, "s503": 9}
    with bad_http_in_a_thread() as bad:
        servers = {mode: url_entry(bad.url(f"/{mode}")) for mode in wanted}
        with faulty(tmp_path, servers) as host:
            for mode, seconds in wanted.items():
                told = failure(host.use(mode, "echo"), "rate_limited")
                assert f"try again in {seconds} s" in told
                for _ in range(10):
                    with takes_at_most(AT_ONCE):
                        assert "try again in" in failure(host.use(mode, "echo"), "rate_limited")
                assert [call.path for call in bad.calls()].count(f"/{mode}") == 1


@pytest.mark.fault("F26")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_a_program_reads_how_long_a_server_wants_to_be_left_alone(
    tmp_path: Path, mode: str, modern: bool
) -> None:
    paths = {"call": "/s429", "start": "/start/s429"}
    with bad_http_in_a_thread() as bad:
        servers = {when: url_entry(bad.url(path)) for when, path in paths.items()}
        with faulty(tmp_path, servers, modern=modern, toolMode=mode) as host:
            for when, path in paths.items():
                # Modern hosts of dynamic mode have no `use_tool`; the names work for every host.
                name = f"dev__{when}__echo" if mode == "dynamic" else ""
                for _ in range(3):
                    result = host.call(name, {}) if name else host.use(when, "echo")
                    text, left = failure(result, "rate_limited"), result["_meta"][RETRY]
                    assert f"try again in {left} s" in text
                    assert 1 <= left <= 7
                asked = bad.seen if when == "start" else bad.calls()
                assert [request.path for request in asked].count(path) == 1, "no attempt before"


@pytest.mark.fault("F26")
def test_the_seconds_go_by_and_then_the_server_is_asked_again(tmp_path: Path) -> None:
    came: dict[str, list[float]] = {"legacy": [], "modern": []}
    with bad_http_in_a_thread() as bad:
        legacy, modern = (
            faulty(
                made(tmp_path / kind),
                {"bad": url_entry(bad.on(f"/start/{kind}", tired_once(bad, came[kind])))},
                modern=kind == "modern",
            )
            for kind in came
        )
        with legacy, modern:
            for host in (legacy, modern):
                assert failure(host.use("bad", "echo"), "rate_limited").endswith("try again in 1 s")
            for host in (legacy, modern):
                eventually(lambda host=host: "isError" not in host.use("bad", "echo"), "it is back")
    for times in came.values():
        assert times[1] - times[0] >= 1, "and not before"


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.fault("F20", "F21")
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_a_program_reads_when_a_server_that_keeps_failing_is_tried_next(
    tmp_path: Path, mode: str
) -> None:
    with faulty(tmp_path, {"bad": entry("exit_start")}, toolMode=mode) as host:
        result: Any = {"_meta": {}}
        while RETRY not in result["_meta"]:
            result = host.use("bad", "echo") if mode == "proxy" else host.call("dev__bad__echo", {})
        assert f"next try in {result['_meta'][RETRY]} s" in failure(result, "connect_failed")
        prompt = {"name": "dev__bad__any"}
        error = host.request("prompts/get", prompt)["error"]
        failures = int(error["message"].partition("it failed ")[2].split()[0])
        assert error["data"][CODE] == "connect_failed"
        assert 1 <= error["data"][RETRY] <= math.ceil(pause_after(failures, 0.0))


@pytest.mark.fault("F27")
def test_a_page_in_the_place_of_a_server_is_named_with_its_start(tmp_path: Path) -> None:
    modes = ("html", "s500", "s502")
    with bad_http_in_a_thread() as bad:
        servers = {mode: url_entry(bad.url(f"/start/{mode}")) for mode in modes}
        with faulty(tmp_path, servers) as host:
            with takes_at_most(1):
                reasons = {one["server"]: one["reason"] for one in host.open()["unavailable"]}
            assert reasons.keys() == set(modes)
            assert "text/html" in reasons["html"]
            assert "<title>Sign in</title>" in reasons["html"]
            assert "HTTP 500" in reasons["s500"]
            assert "HTTP 502" in reasons["s502"]
            assert all(reason.isprintable() for reason in reasons.values())
            for mode in modes:
                failure(host.use(mode, "echo"), "connect_failed")


@pytest.mark.fault("F28")
@pytest.mark.usefixtures("real_commands")
def test_what_never_ends_takes_no_memory_and_no_time_of_others(tmp_path: Path) -> None:
    limits = {"messageBytes": 16 << 20}
    modes = ("gzbomb", "endless_sse")
    with bad_http_in_a_thread() as bad:
        servers = {mode: url_entry(bad.url(f"/{mode}")) for mode in modes}
        with faulty(tmp_path, servers, lag=LAG, limits=limits) as host:
            host.open()
            pid = host.process.pid
            for mode in modes:
                before = megabytes(pid)
                forget_peak(pid)
                assert "limits.messageBytes" in failure(host.use(mode, "echo"), "too_large")
                assert megabytes(pid, "VmHWM") - before < 64


@pytest.mark.fault("F29")
def test_two_megabytes_pass_as_json_and_as_events(tmp_path: Path) -> None:
    modes = ("bigsse", "bigjson")
    with bad_http_in_a_thread() as bad:
        servers = {mode: url_entry(bad.url(f"/{mode}")) for mode in modes}
        with faulty(tmp_path, servers) as host:
            for mode in modes:
                assert tell(host, mode) == "x" * (2 << 20)


@pytest.mark.fault("F30")
def test_a_redirect_is_followed_at_home_and_nowhere_else(tmp_path: Path) -> None:
    with bad_http_in_a_thread() as bad:
        servers = {
            "same": url_entry(bad.url("/redir_same")),
            "cross": url_entry(bad.url("/redir_cross")),
        }
        with faulty(tmp_path, servers) as host:
            assert tell(host, "same") == "hi"
            told = failure(host.use("cross", "echo"), "protocol_error")
            assert "http://127.0.0.2:1," in told
            assert "token=1" not in told


@pytest.mark.fault("F50", "F13")
def test_a_body_of_many_lines_reaches_a_host_on_a_pipe_in_one(tmp_path: Path) -> None:
    async def deep(request: Request, out: Hung) -> None:
        await out.events(event(result(request, b"[" * 100_000 + b"]" * 100_000)))

    with bad_http_in_a_thread() as bad:
        servers = {named(era, "pretty"): url_entry(bad.url(f"{era}/pretty")) for era in ERAS}
        servers |= {named(era, "deep"): url_entry(bad.on(f"{era}/deep", deep)) for era in ERAS}
        with faulty(tmp_path, servers) as host:  # which takes one message from each line
            for era in ERAS:
                assert tell(host, named(era, "pretty"), "a\\nb") == "a\nb"
                assert json.loads(host.lines[-1])["result"]["content"][0]["text"] == "a\nb"
                with takes_at_most(AT_ONCE):
                    failure(host.use(named(era, "deep"), "echo"), "protocol_error")


@pytest.mark.fault("F24")
def test_a_server_that_goes_away_and_comes_back_is_called_again(tmp_path: Path) -> None:
    with bad_http_in_a_thread() as bad:
        server = url_entry(bad.on("/flaky/x", MODES["rst"]))
        with faulty(tmp_path, {"bad": server}) as host:
            for _ in range(3):
                assert host.use("bad", "echo")["_meta"][CODE] == "server_exited"
            bad.acts["/flaky/x"] = BadHttp.good.__get__(bad)
            assert tell(host, "bad") == "hi"
            assert len(bad.calls("initialize")) == 1
