"""Scripts: tokens of six tasks with the reference servers, and the time and memory that a script needs.

    python -m bench.scripts [tokens] [speed] [--json FILE]

`tokens` does each task in up to three ways: call by call, asking for a part of each answer, and with one script. It
counts o200k tokens of every name, all arguments and all text that comes back. No model is involved: the calls and the
scripts are those that a person wrote, so the ratios say what is possible, not what an agent achieves. It needs git, and
the servers that `make peers` installs; $FETCH is a Python that has mcp-server-fetch, for the last task.

`speed` measures inner calls beside direct ones, the start of a script, 64 scripts at once, memory, and how long a
modern host's script needs to leave its process with a question, and to go on in another.
"""

# A measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import argparse
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
NODE = ROOT / ".node" / "node_modules" / "@modelcontextprotocol"
SERVER = Path(__file__).with_name("server.py")
COMMIT = "74dc0acac683f31008645eb8406f0aecbd13a20d"  # of this project: the tasks stay the same
ZONES = (
    "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles", "Asia/Tokyo",
    "Asia/Kolkata", "Australia/Sydney", "America/Sao_Paulo",
)  # fmt: skip
PAGE = 5000  # characters of a page, as mcp-server-fetch gives them
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
YES = {"action": "accept", "content": {"decision": "yes, once"}}
CALL_ABOVE, COLD, WARM = 1.5, 150.0, 15.0  # milliseconds: the targets


def count(text: str) -> int:
    from rs_bpe.bpe import openai

    return openai.o200k_base().count(text)


class Host:
    """A legacy host of the workbench, which counts what passes."""

    def __init__(self, config: Path, *, modern: bool = False) -> None:
        self._modern = modern
        command = [sys.executable, "-P", "-m", "mcp_workbench", "serve", "--config", str(config)]
        env = {**os.environ, "MCP_WORKBENCH_HOME": str(config.parent / "home")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0
        )
        self._lines = self.process.stdout
        self._reader = open(self._lines.fileno(), "rb", closefd=False)  # noqa: SIM115 - for its whole life
        self._id = 0
        self.tokens = self.calls = 0
        if modern:
            return
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.request("initialize", params)
        self.send({"method": "notifications/initialized"})

    def send(self, message: Any) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def begin(self, method: str, params: Any) -> int:
        self._id += 1
        if self._modern:
            params = {**params, "_meta": MODERN}
        self.send({"id": self._id, "method": method, "params": params})
        return self._id

    def answer(self, ids: set[int]) -> Any:
        while True:
            message = json.loads(self._reader.readline())
            if message.get("id") in ids:
                ids.discard(message["id"])
                return message.get("result") or message

    def request(self, method: str, params: Any) -> Any:
        return self.answer({self.begin(method, params)})

    def tool(self, name: str, arguments: Any) -> str:
        """The text of a call, which is counted."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if "content" not in result or result.get("isError"):
            raise SystemExit(f"{name} failed: {json.dumps(result)[:2000]}")
        text = "\n".join(block.get("text", "") for block in result["content"])
        self.tokens += count(name) + count(json.dumps(arguments)) + count(text)
        self.calls += 1
        return text

    def use(self, server: str, tool: str, arguments: Any, **part: Any) -> str:
        identifier = {"toolbox": "ref", "server": server, "tool": tool}
        return self.tool("use_tool", {"tool": identifier, "arguments": arguments, **part})

    def script(self, code: str) -> str:
        return self.tool("run_script", {"code": code})

    def spent(self) -> tuple[int, int]:
        spent = self.tokens, self.calls
        self.tokens = self.calls = 0
        return spent

    def close(self) -> None:
        self._reader.close()
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Task(NamedTuple):
    """One task: call by call, with parts of answers, and as a script. Each returns what it found."""

    name: str
    calls: Callable[[Host], Any]
    parts: Callable[[Host], Any] | None
    script: str


# The world that the servers look at


def make_world(folder: Path) -> dict[str, Any]:
    """Files and commits of this project as it was once, people, and a long page."""
    files, repository = folder / "files", folder / "repository"
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(repository)]
    subprocess.run(clone, check=True)
    subprocess.run(["git", "-C", str(repository), "checkout", "--quiet", COMMIT], check=True)
    files.mkdir()
    for source in sorted((repository / "src/mcp_workbench/transport").rglob("*.py"))[:17]:
        name = f"http_{source.name}" if source.parent.name == "http" else source.name
        (files / name).write_text(source.read_text())
    memory = folder / "memory.jsonl"
    people = [
        {
            "type": "entity",
            "name": f"Person {n:02}",
            "entityType": "person",
            "observations": [f"lives in town {n}", f"likes the colour {n % 7}"]
            + ([f"email: person{n}@example.com"] if n % 8 else []),
        }
        for n in range(60)
    ]
    memory.write_text("\n".join(map(json.dumps, people)) + "\n")
    return {
        "filesystem": _node("server-filesystem", str(files)),
        "memory": {**_node("server-memory"), "env": {"MEMORY_FILE_PATH": str(memory)}},
        "git": {"command": sys.executable, "args": ["-m", "mcp_server_git"]},
        "time": {
            "command": sys.executable,
            "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
        },
    }


def _node(package: str, *args: str) -> dict[str, Any]:
    return {"command": "node", "args": [str(NODE / package / "dist" / "index.js"), *args]}


class Pages(http.server.BaseHTTPRequestHandler):
    """One long page on loopback."""

    body = "".join(
        f"<h2>Section {n}</h2><p>{'Some words about it. ' * 40}</p>" for n in range(24)
    ).encode()

    def do_GET(self) -> None:
        found = self.path == "/page"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body>" + self.body + b"</body></html>" if found else b"")

    def log_message(self, format: str, *args: Any) -> None:
        return


# The tasks


def tasks(folder: Path, page: str) -> list[Task]:
    files, repository = str(folder / "files"), str(folder / "repository")
    sources = sorted(path.name for path in (folder / "files").iterdir())
    http_files = [name for name in sources if name.startswith("http_")]

    def largest(host: Host) -> list[str]:
        host.use("filesystem", "list_directory_with_sizes", {"path": files, "sortBy": "size"})
        by_size = sorted(sources, key=lambda name: -(folder / "files" / name).stat().st_size)[:5]
        for name in by_size:
            host.use("filesystem", "read_text_file", {"path": f"{files}/{name}", "head": 1})
        return by_size

    def touched(host: Host) -> set[str]:
        host.use("git", "git_log", {"repo_path": repository, "max_count": 15})
        names: set[str] = set()
        for commit in commits():
            text = host.use("git", "git_show", {"repo_path": repository, "revision": commit})
            names |= {line[6:] for line in text.splitlines() if line.startswith("+++ b/")}
        return names

    def touched_parts(host: Host) -> None:
        host.use("git", "git_log", {"repo_path": repository, "max_count": 15}, lines="^Commit")
        for commit in commits():
            host.use(
                "git", "git_show", {"repo_path": repository, "revision": commit}, lines=r"^\+\+\+ "
            )

    def commits() -> list[str]:
        log = ["git", "-C", repository, "log", "-15", "--format=%H"]
        return subprocess.run(log, check=True, capture_output=True, text=True).stdout.split()

    def timeouts(host: Host) -> int:
        host.use("filesystem", "search_files", {"path": files, "pattern": "http_*.py"})
        paths = [f"{files}/{name}" for name in http_files]
        return host.use("filesystem", "read_multiple_files", {"paths": paths}).count("timeout")

    def timeouts_parts(host: Host) -> None:
        host.use("filesystem", "search_files", {"path": files, "pattern": "http_*.py"})
        paths = [f"{files}/{name}" for name in http_files]
        host.use("filesystem", "read_multiple_files", {"paths": paths}, lines="timeout")

    def without_email() -> list[str]:
        return [f"Person {n:02}" for n in range(60) if not n % 8]

    def marked(host: Host) -> None:
        host.use("memory", "read_graph", {})
        notes = [{"entityName": n, "contents": ["no e-mail"]} for n in without_email()]
        host.use("memory", "add_observations", {"observations": notes})

    def marked_parts(host: Host) -> None:
        missing = "entities[?!(observations[?starts_with(@, 'email')])].name"
        host.use("memory", "read_graph", {}, select=missing)
        notes = [{"entityName": n, "contents": ["no e-mail"]} for n in without_email()]
        host.use("memory", "add_observations", {"observations": notes})

    def zones(host: Host, **part: Any) -> None:
        for zone in ZONES:
            given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": zone}
            host.use("time", "convert_time", given, **part)

    def headings(host: Host, **part: Any) -> None:
        start, text = 0, "start_index"
        while "start_index" in text:
            text = host.use("fetch", "fetch", {"url": page, "start_index": start, "raw": True})
            start += PAGE

    def headings_parts(host: Host) -> None:
        start = 0
        while start < len(Pages.body):
            given = {"url": page, "start_index": start, "raw": True}
            host.use("fetch", "fetch", given, lines="<h2>")
            start += PAGE

    def one_file(host: Host) -> None:
        host.use("filesystem", "read_text_file", {"path": f"{files}/http_addresses.py"})

    listed = [
        Task(
            "5 largest files, first lines",
            largest,
            None,
            f"""t = await call("ref/filesystem/list_directory_with_sizes", path="{files}", sortBy="size")
t = t["content"] if isinstance(t, dict) else t
names = [l.split()[1] for l in t.splitlines() if l.startswith("[FILE]")][:5]
for n in names:
    r = await call("ref/filesystem/read_text_file", path="{files}/" + n, head=1)
    print(n, r["content"] if isinstance(r, dict) else r)""",
        ),
        Task(
            "files touched by 15 commits",
            touched,
            touched_parts,
            f"""p = "{repository}"
log = str(await call("ref/git/git_log", repo_path=p, max_count=15))
seen = set()
for c in re.findall(r"[0-9a-f]{{40}}", log):
    d = str(await call("ref/git/git_show", repo_path=p, revision=c))
    seen |= set(re.findall(r"\\+\\+\\+ b/(\\S+)", d))
sorted(seen)""",
        ),
        Task(
            "`timeout` in http_*.py",
            timeouts,
            timeouts_parts,
            f"""f = await call("ref/filesystem/search_files", path="{files}", pattern="http_*.py")
f = f["content"] if isinstance(f, dict) else f
for p in f.splitlines():
    t = await call("ref/filesystem/read_text_file", path=p)
    for i, l in enumerate((t["content"] if isinstance(t, dict) else t).splitlines()):
        if "timeout" in l:
            print(p.split("/")[-1], i + 1, l.strip())""",
        ),
        Task(
            "people without e-mail, mark them",
            marked,
            marked_parts,
            """g = await call("ref/memory/read_graph")
names = [e["name"] for e in g["entities"] if not any(o.startswith("email") for o in e["observations"])]
await call("ref/memory/add_observations", observations=[{"entityName": n, "contents": ["no e-mail"]} for n in names])
names""",
        ),
        Task(
            "one time in 8 zones",
            zones,
            lambda host: zones(host, select="target.datetime"),
            f"""for z in {list(ZONES)}:
    r = await call("ref/time/convert_time", source_timezone="UTC", time="12:00", target_timezone=z)
    print(z, r["target"]["datetime"][11:16])""",
        ),
    ]
    if page:
        code = f"""s, t = 0, "start_index"
while "start_index" in t:
    t = await call("ref/fetch/fetch", url="{page}", start_index=s, raw=True)
    for h in re.findall("<h2>(.*?)</h2>", t): print(h)
    s += {PAGE}"""
        listed.append(Task("headings of a paged page", headings, headings_parts, code))
    control = f"""r = await call("ref/filesystem/read_text_file", path="{files}/http_addresses.py")
r["content"] if isinstance(r, dict) else r"""
    return [*listed, Task("control: one file, all of it wanted", one_file, None, control)]


def measure_tokens(folder: Path) -> list[dict[str, Any]]:
    servers = make_world(folder)
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    page = ""
    if fetch := os.environ.get("FETCH"):
        page = f"http://127.0.0.1:{served.server_address[1]}/page"
        arguments = ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"]
        servers["fetch"] = {"command": fetch, "args": arguments, "inheritEnv": False}
    else:
        print("$FETCH is not set: without the task that needs mcp-server-fetch", file=sys.stderr)
    config = folder / "config.json"
    config.write_text(json.dumps({"scripts": True, "toolboxes": {"ref": {"mcpServers": servers}}}))
    config.chmod(0o600)
    host = Host(config)
    listed = host.request("tools/list", {})["tools"]
    use_tool = next(tool for tool in listed if tool["name"] == "use_tool")
    projects = "lines" in use_tool["inputSchema"]["properties"]
    rows: list[dict[str, Any]] = []
    for task in tasks(folder, page):
        task.calls(host)
        by_call, calls = host.spent()
        parts = None
        if projects and task.parts is not None:
            task.parts(host)
            parts = host.spent()[0]
        host.script(task.script)
        script = host.spent()[0]
        rows.append(
            {
                "task": task.name,
                "calls": calls,
                "oneByOne": by_call,
                "parts": parts,
                "script": script,
            }
        )
    definition = next(tool for tool in listed if tool["name"] == "run_script")
    shown = {key: definition[key] for key in ("name", "description", "inputSchema")}
    rows.append({"definition": count(json.dumps(shown, ensure_ascii=False))})
    host.close()
    served.shutdown()
    return rows


def print_tokens(rows: list[dict[str, Any]]) -> None:
    print("| task | one by one (calls) | parts | script | ratio |\n|---|---|---|---|---|")
    measured = [row for row in rows if "task" in row]
    for row in measured:
        parts = "-" if row["parts"] is None else f"{row['parts']:,}"
        ratio = row["oneByOne"] / row["script"]
        one = f"{row['oneByOne']:,} ({row['calls']})"
        print(f"| {row['task']} | {one} | {parts} | {row['script']:,} | {ratio:.1f} |")
    six = [row for row in measured if not row["task"].startswith("control")]
    whole, scripted = sum(r["oneByOne"] for r in six), sum(r["script"] for r in six)
    ratios = [row["oneByOne"] / row["script"] for row in six]
    print(
        f"| sum | {whole:,} | | {scripted:,} | {whole / scripted:.0f}, median {median(ratios):.0f} |"
    )
    print(f"\ndefinition of run_script: {rows[-1]['definition']} tokens")


# Speed


def measure_speed(folder: Path) -> dict[str, Any]:
    servers = {
        "s": {"command": sys.executable, "args": ["-E", "-S", str(SERVER), "s"], "era": "legacy"}
    }
    config = folder / "config.json"
    config.write_text(json.dumps({"scripts": True, "toolboxes": {"ref": {"mcpServers": servers}}}))
    config.chmod(0o600)
    cold: list[float] = []
    for _ in range(7):
        host = Host(config)
        cold.append(timed(lambda host=host: host.request("tools/call", run("1"))))
        host.close()
    host = Host(config)
    tool = first_tool(host)
    identifier = {"toolbox": "ref", "server": "s", "tool": tool}
    call = {"name": "use_tool", "arguments": {"tool": identifier, "arguments": {"text": "x"}}}
    host.request("tools/call", run("1"))
    warm = [timed(lambda: host.request("tools/call", run("1"))) for _ in range(50)]
    direct: list[float] = []
    inner: list[float] = []
    for _ in range(20):  # one after the other, so that both see the same machine
        direct.append(timed(lambda: [host.request("tools/call", call) for _ in range(40)]) / 40)
        code = f"for i in range(40): await call('ref/s/{tool}', text='x')"
        whole = timed(lambda code=code: host.request("tools/call", run(code)))
        empty = timed(lambda: host.request("tools/call", run("1")))
        inner.append((whole - empty) / 40)
    code = f"for i in range(5): await call('ref/s/{tool}', text='x')"
    ids = {host.begin("tools/call", run(code)) for _ in range(64)}
    since, finished = time.perf_counter(), 0
    while ids:
        finished += not host.answer(ids).get("isError", False)
    at_once = (time.perf_counter() - since) * 1000
    one, many = (memory_of(host, count) for count in (1, 64))
    host.close()
    return {
        **measure_moves(config, tool),
        "coldMs": median(cold),
        "warmMs": median(warm),
        "directMs": median(direct),
        "innerMs": median(inner),
        "aboveMs": median(i - d for i, d in zip(inner, direct, strict=True)),
        "sixtyFourMs": at_once,
        "sixtyFourFinished": finished,
        "engineMb": one[0],
        "workerMb": one[1],
        "sixtyFourMb": sum(many),
    }


def measure_moves(config: Path, tool: str) -> dict[str, Any]:
    """A script that asks in one process, and goes on in another."""
    written = json.loads(config.read_text())
    written["toolboxes"]["ref"]["mcpServers"]["s"]["approve"] = True
    config.write_text(json.dumps(written))
    first, second = (Host(config, modern=True) for _ in range(2))
    code = f"r = await call('ref/s/{tool}', text='x')\nr"
    away: list[float] = []
    back: list[float] = []
    sizes: list[int] = []
    for number in range(22):
        since = time.perf_counter()
        asked = first.request("tools/call", run(code))
        between = time.perf_counter()
        answers = dict.fromkeys(asked["inputRequests"], YES)
        state = {"inputResponses": answers, "requestState": asked["requestState"]}
        result = second.request("tools/call", {**run(code), **state})
        ended = time.perf_counter()
        if result.get("isError", True) and "content" not in result:
            raise SystemExit(json.dumps(result))
        if number > 1:  # both have started everything
            away.append((between - since) * 1000)
            back.append((ended - between) * 1000)
            sizes.append(len(asked["requestState"]))
    first.close()
    second.close()
    return {"awayMs": median(away), "backMs": median(back), "stateBytes": median(sizes)}


def run(code: str) -> dict[str, Any]:
    return {"name": "run_script", "arguments": {"code": code}}


def timed(work: Callable[[], Any]) -> float:
    since = time.perf_counter()
    result = work()
    spent = (time.perf_counter() - since) * 1000
    if isinstance(result, dict) and result.get("isError"):
        raise SystemExit(json.dumps(result))
    return spent


def first_tool(host: Host) -> str:
    result = host.request(
        "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "ref"}}
    )
    return json.loads(result["content"][0]["text"])["tools"][0]["name"]


def memory_of(host: Host, scripts: int) -> tuple[float, float]:
    """Megabytes that the engine and its workers do not share with others, while so many scripts wait."""
    ids = {host.begin("tools/call", run("import time\ntime.sleep(3)")) for _ in range(scripts)}
    names = {p: Path(f"/proc/{p}/cmdline").read_bytes() for p in children(host.process.pid)}
    engine = next(pid for pid, name in names.items() if b"script_engine" in name)
    until = time.monotonic() + 2
    while len(children(engine)) < scripts and time.monotonic() < until:
        time.sleep(0.05)
    figures = private(engine), sum(map(private, children(engine)))
    while ids:
        host.answer(ids)
    return figures


def children(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(") ")[2].split()[1]) == pid:
            found.append(int(text.split()[0]))
    return found


def private(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


def print_speed(figures: dict[str, Any]) -> bool:
    rows = (
        ("start of a script, cold", figures["coldMs"], COLD, "ms"),
        ("start of a script, warm", figures["warmMs"], WARM, "ms"),
        ("inner call above a direct one", figures["aboveMs"], CALL_ABOVE, "ms"),
    )
    for name, value, target, unit in rows:
        print(
            f"{name}: {value:.2f} {unit} (target {target:g}: {'kept' if value <= target else 'MISSED'})"
        )
    print(f"direct call {figures['directMs']:.2f} ms, inner call {figures['innerMs']:.2f} ms")
    print(
        f"64 scripts at once: {figures['sixtyFourMs']:.0f} ms, {figures['sixtyFourFinished']} finished"
    )
    print(
        f"memory: engine {figures['engineMb']:.1f} MB, a worker {figures['workerMb']:.1f} MB, "
        f"with 64 scripts that wait {figures['sixtyFourMb']:.0f} MB"
    )
    print(
        f"a question: {figures['awayMs']:.1f} ms until it is put, {figures['backMs']:.1f} ms from its answer to the end "
        f"in another process, requestState {figures['stateBytes']:.0f} bytes"
    )
    return all(value <= target for _, value, target, _ in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="tokens|speed")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    suites = options.suites or ["tokens", "speed"]
    figures: dict[str, Any] = {}
    kept = True
    if "tokens" in suites:
        with tempfile.TemporaryDirectory() as folder:
            figures["tokens"] = measure_tokens(Path(folder).resolve())
        print_tokens(figures["tokens"])
    if "speed" in suites:
        with tempfile.TemporaryDirectory() as folder:
            figures["speed"] = measure_speed(Path(folder).resolve())
        kept = print_speed(figures["speed"])
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
