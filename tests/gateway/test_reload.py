"""What another configuration changes is decided by values alone."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.config.expand import resolve_server
from mcp_workbench.core.spec import (
    HttpEndpoint,
    HttpSettings,
    Limits,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    tool_filter,
)
from mcp_workbench.gateway.reload import (
    Reloaded,
    ReloadPlan,
    applied_now,
    plan_reload,
    servers_of,
)
from mcp_workbench.gateway.views import Scopes, narrowed_to
from tests.kit.config import snapshot, spec

replace = msgspec.structs.replace


def plan(before: Snapshot, after: Snapshot, **environ: str) -> ReloadPlan:
    def ways(of: Snapshot) -> dict[ServerAddress, object]:
        return {address: resolve_server(one, environ) for address, one in servers_of(of).items()}

    return plan_reload(before, after, ways(before), ways(after))


A, B, C = (ServerAddress("dev", name) for name in "abc")


def test_each_server_is_kept_changed_added_or_removed() -> None:
    before = snapshot(spec("a"), spec("b"), spec("c"))
    after = snapshot(spec("d"), spec("b", "paged"), spec("a"))

    assert plan(before, after) == ReloadPlan(
        kept=(A,), changed=(B,), added=(ServerAddress("dev", "d"),), removed=(C,)
    )


def test_what_is_only_shown_otherwise_needs_no_new_connection() -> None:
    other = spec("a", tools=tool_filter(("echo",)), timeout=1.0, connect_timeout=2.0)
    after = snapshot(replace(other, place="elsewhere"))
    box = replace(after.toolboxes["dev"], description="another")

    found = plan(snapshot(spec("a")), replace(after, toolboxes={"dev": box}))

    assert found == ReloadPlan(kept=(A,), refiltered=(A,))


def test_everything_that_leads_elsewhere_does() -> None:
    command = StdioCommand("x", ("1",), (("K", "v"),), "sub", "/folder")
    one = ServerSpec(A, command)
    others = [
        replace(one, target=replace(command, command="y")),
        replace(one, target=replace(command, args=("2",))),
        replace(one, target=replace(command, env=(("K", "w"),))),
        replace(one, target=replace(command, cwd="other")),
        replace(one, target=replace(command, inherit=("A",))),
        replace(one, target=HttpEndpoint("http://x/mcp")),
        replace(one, era="modern"),
        replace(one, scope="session"),
        replace(one, problem="it can't be used"),
    ]

    assert [plan(snapshot(one), snapshot(other)).changed for other in others] == [(A,)] * len(
        others
    )


def test_every_part_of_a_url_s_entry_leads_elsewhere() -> None:
    target = HttpEndpoint("http://x/mcp", (("A", "1"), ("B", "2")))
    one = ServerSpec(A, target)
    others = [
        HttpEndpoint("http://y/mcp", target.headers),
        HttpEndpoint("http://x/mcp", (("A", "1"), ("B", "3"))),
        replace(target, transport="sse"),
    ]

    for other in others:
        assert plan(snapshot(one), snapshot(replace(one, target=other))).changed == (A,)


def test_the_order_of_variables_and_headers_and_how_a_value_is_written_do_not_matter() -> None:
    command = StdioCommand("x", ("${WORD}",), (("A", "1"), ("B", "2")), "/abs", "/folder")
    same = StdioCommand("x", ("hello",), (("B", "2"), ("A", "1")), "/abs", "/elsewhere")
    url = HttpEndpoint("http://x", (("A", "1"), ("B", "2")))
    turned = HttpEndpoint("http://x", (("B", "2"), ("A", "1")))
    before = snapshot(ServerSpec(A, command), ServerSpec(B, url))
    after = snapshot(ServerSpec(A, same), ServerSpec(B, turned))

    assert plan(before, after, WORD="hello") == ReloadPlan(kept=(A, B))
    assert plan(before, after, WORD="bye").changed == (A,)


def test_a_server_that_moves_or_gets_another_name_is_another() -> None:
    moved = spec("a", toolbox="ops")

    found = plan(snapshot(spec("a")), snapshot(moved))

    assert (found.added, found.removed) == ((moved.address,), (A,))


def test_the_mode_and_the_port_wait_for_the_next_start_and_the_rest_does_not() -> None:
    running = snapshot(spec("a"))
    wanted = replace(
        snapshot(spec("b")),
        tool_mode="dynamic",
        naming="bare",
        http=HttpSettings("token"),
        limits=Limits(message_bytes=2048, calls_per_server=1, open_wait=3.0),
    )

    possible, later = applied_now(running, wanted)

    assert later == ("toolMode", "naming", "http", "limits.messageBytes")
    assert possible == replace(
        running, toolboxes=wanted.toolboxes, limits=Limits(calls_per_server=1, open_wait=3.0)
    )
    assert applied_now(running, running) == (running, ())


def test_a_reload_says_in_words_what_it_changed() -> None:
    before, after = snapshot(spec("a"), spec("b")), snapshot(spec("a", "paged"), spec("c"))

    told = Reloaded(before, after, plan(before, after))

    assert str(told) == "added dev/c; removed dev/b; reconnected dev/a"
    assert str(Reloaded(before, before, ReloadPlan())) == "no server was added, removed or changed"
    assert told.anything
    assert not Reloaded(before, before, ReloadPlan()).anything


def test_every_view_follows_and_one_of_a_toolbox_that_is_gone_is_empty() -> None:
    scopes = Scopes(snapshot(spec("a"), spec("b", toolbox="ops")))
    dev, ops = scopes.part("dev".__eq__), scopes.part("ops".__eq__)
    scopes.warnings = ("something is wrong",)

    scopes.replace(snapshot(spec("c")))

    assert list(scopes.whole.snapshot.toolboxes) == ["dev"]
    assert list(dev.snapshot.toolboxes["dev"].servers) == ["c"]
    assert ops.snapshot.toolboxes == {}
    assert scopes.warnings == ()


NAMES = st.sampled_from("abcd")
SERVERS = st.dictionaries(NAMES, st.sampled_from([(), ("paged",), ("crlf",)]))
BOXES = st.dictionaries(st.sampled_from(["dev", "ops"]), SERVERS)


def made(boxes: dict[str, dict[str, tuple[str, ...]]]) -> Snapshot:
    return Snapshot(
        {
            box: ToolboxSpec(box, "", {n: spec(n, *flags, toolbox=box) for n, flags in of.items()})
            for box, of in boxes.items()
        }
    )


@given(BOXES, BOXES)
def test_a_plan_names_every_server_once(
    old: dict[str, dict[str, tuple[str, ...]]], new: dict[str, dict[str, tuple[str, ...]]]
) -> None:
    before, after = made(old), made(new)

    found = plan(before, after)

    assert sorted(found.kept + found.changed + found.added) == sorted(servers_of(after))
    assert sorted(found.kept + found.changed + found.removed) == sorted(servers_of(before))
    assert plan(before, before) == ReloadPlan(kept=tuple(servers_of(before)))
    assert narrowed_to(after, ()) is after
