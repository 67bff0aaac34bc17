"""The tools that run as tasks, and the tasks themselves, in either era.

In 2025-11-25 a host asks for a task, and fetches its result with a request that lasts; a question of a task is sent
while such a request is open. In 2026-07-28 the server decides, and a host polls.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from call import Call, lacks, numbers
from changes import CHANGES
from forms import NAME, form
from pipe import Json, Refused, send, text

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
CAPABILITY: Json = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
TERMINAL = ("completed", "failed", "cancelled")
TTL = int(os.environ.get("TASK_TTL", "60000"))  # milliseconds
POLL = 100  # milliseconds
CONFIRM = {"type": "boolean", "description": "Really?"}

ids = itertools.count(1)
kept: dict[str, "Task"] = {}
running: set[asyncio.Task[None]] = set()


class Task:
    """One call that goes on after its request was answered."""

    def __init__(self, call: Call) -> None:
        # Like real servers, another process never gives the same id.
        self.id = f"task-{os.getpid()}-{next(ids)}"
        self.call = call
        self.status = "working"
        self.message = ""
        self.created = self.updated = now()
        wanted: Json = call.params.get("task") or {}
        self.ttl: int = wanted.get("ttl", TTL)
        self.result: Json | None = None
        self.error: Json | None = None
        self.questions: dict[str, tuple[Json, asyncio.Future[Json]]] = {}
        self.fetched = asyncio.Event()  # somebody waits for the result, and can be asked
        self.over = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        kept[self.id] = self

    def start(self, work: Awaitable[Json]) -> None:
        asyncio.get_running_loop().call_later(self.ttl / 1000, self.forget)
        self._work = asyncio.create_task(self._run(work))
        running.add(self._work)
        self._work.add_done_callback(running.discard)

    async def _run(self, work: Awaitable[Json]) -> None:
        try:
            self.result = await work
        except Refused as no:
            self.error = no.error
            self.end("failed")
        except asyncio.CancelledError:
            self.end("cancelled")
        else:
            is_failure = self.result.get("isError") and not self.call.modern
            self.end("failed" if is_failure else "completed")

    def end(self, status: str) -> None:
        if self.over.is_set():  # it was cancelled
            return
        self.enter(status)
        self.over.set()

    def enter(self, status: str) -> None:
        """Be in another state, and announce it."""
        self.status, self.updated = status, now()
        state = self.detailed() if self.call.modern else self.described()
        CHANGES.task_changed(self.id, state, modern=self.call.modern)

    def forget(self) -> None:
        self.cancel()
        del kept[self.id]

    def cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()
        self.end("cancelled")

    def described(self) -> Json:
        times: Json = {"createdAt": self.created, "lastUpdatedAt": self.updated}
        task: Json = {"taskId": self.id, "status": self.status, **times}
        if self.message:
            task["statusMessage"] = self.message
        if self.call.modern:
            return {**task, "ttlMs": self.ttl, "pollIntervalMs": POLL}
        return {**task, "ttl": self.ttl, "pollInterval": POLL}

    def detailed(self) -> Json:
        task = self.described()
        if self.status == "input_required":
            task["inputRequests"] = {key: asked for key, (asked, _) in self.questions.items()}
        elif self.status == "completed" and self.result is not None:
            task["result"] = {"resultType": "complete", **self.result}
        elif self.status == "failed":
            task["error"] = self.error
        return task

    async def ask(self, questions: Json) -> Json:
        """The answers by the keys of their questions; all are asked at once."""
        waiting = {key: asyncio.get_running_loop().create_future() for key in questions}
        if self.call.modern:
            self.questions = {key: (questions[key], waiting[key]) for key in questions}
        self.enter("input_required")
        if not self.call.modern:
            await self.fetched.wait()
            for key, question in questions.items():
                number = f"ask-{next(numbers)}"
                self.call.session["questions"][number] = waiting[key]
                meta = {RELATED: {"taskId": self.id}}
                params = {**question["params"], "_meta": meta}
                send({"id": number, "method": question["method"], "params": params})
        answers = {key: await answer for key, answer in waiting.items()}
        self.enter("working")
        if self.call.modern:
            return answers
        return {key: answer.get("result", {}) for key, answer in answers.items()}


def now() -> str:
    return datetime.now(UTC).isoformat()


# Tools


async def greet(call: Call, _task: Task | None) -> Json:
    return text(f"Hello, {call.arguments.get('name', 'World')}!")


async def slow_compute(call: Call, _task: Task | None) -> Json:
    seconds = call.arguments.get("seconds", 0)
    call.progress(1, 3)
    await asyncio.sleep(seconds / 2)
    call.progress(2, 3)
    await asyncio.sleep(seconds / 2)
    return text(f"{call.arguments.get('label', 'computed')}: done after {seconds} s")


async def failing_job(_call: Call, _task: Task | None) -> Json:
    await asyncio.sleep(0.1)
    return {**text("The job failed"), "isError": True}


async def protocol_error_job(_call: Call, _task: Task | None) -> Json:
    await asyncio.sleep(0.1)
    raise Refused(-32603, "The job broke")


async def confirm_delete(call: Call, task: Task | None) -> Json:
    asked = {"confirm": form(f"Delete {call.arguments.get('filename')}?", confirm=CONFIRM)}
    answers = await (call.ask(asked) if task is None else task.ask(asked))
    accepted = answers["confirm"].get("action") == "accept"
    return text(f"{'Deleted' if accepted else 'Kept'} {call.arguments.get('filename')}")


async def multi_input(call: Call, task: Task | None) -> Json:
    asked: Json = {key: form(f"The {key}?", name={"type": "string"}) for key in ("first", "second")}
    answers = await (call.ask(asked) if task is None else task.ask(asked))
    call.progress(1, 1)
    given = [filled(answers[key]) for key in asked]
    return text(f"Got {' and '.join(given)}")


def filled(answer: Json) -> str:
    content: Json = answer.get("content") or {}
    return content.get("name", "nothing")


async def with_task(call: Call, _task: Task | None) -> Json:
    await asyncio.sleep(0.1)
    return text(f"Hello, {call.session.get('user_name')}!")


async def required_job(call: Call, _task: Task | None) -> Json:
    """Does what its arguments say, as a task only."""
    call.progress(1, 2)
    await asyncio.sleep(call.arguments.get("seconds", 0))
    call.progress(2, 2)
    return text(f"Did {call.arguments.get('what', 'it')}")


async def task_statuses(_call: Call, _task: Task | None) -> Json:
    return text(" ".join(task.status for task in kept.values()))


async def crash(_call: Call, _task: Task | None) -> Json:
    os._exit(3)


STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
Tool = Callable[[Call, Task | None], Awaitable[Json]]
# The tool, its description, its arguments, and whether it runs as a task.
TASK_TOOLS: dict[str, tuple[Tool, str, Json, str]] = {
    "greet": (greet, "Greets", {"name": STRING}, "forbidden"),
    "slow_compute": (
        slow_compute,
        "Takes as long as it is told",
        {"seconds": NUMBER, "label": STRING},
        "optional",
    ),
    "failing_job": (failing_job, "Fails", {}, "required"),
    "protocol_error_job": (protocol_error_job, "Breaks", {}, "optional"),
    "confirm_delete": (confirm_delete, "Asks first", {"filename": STRING}, "optional"),
    "multi_input": (multi_input, "Asks two things at once", {}, "optional"),
    "test_tool_with_task": (with_task, "Asks, then takes its time", {}, "required"),
    "required_job": (
        required_job,
        "Runs as a task only",
        {"seconds": NUMBER, "what": STRING},
        "required",
    ),
    "task_statuses": (task_statuses, "Lists the statuses of all tasks", {}, "forbidden"),
    "crash": (crash, "Ends this server, and its tasks with it", {}, "forbidden"),
    "required_question": (confirm_delete, "Asks, as a task", {"filename": STRING}, "required"),
}


def task_tools(*, modern: bool) -> list[Json]:
    tools: list[Json] = []
    for name, (_, what, properties, support) in TASK_TOOLS.items():
        schema: Json = {"type": "object", "properties": properties}
        tool: Json = {"name": name, "description": what, "inputSchema": schema}
        if not modern:
            tool["execution"] = {"taskSupport": support}
        tools.append(tool)
    return tools


async def call_task_tool(call: Call, name: str) -> Json:
    tool, _, _, support = TASK_TOOLS[name]
    wanted = EXTENSION in extensions(call) if call.modern else "task" in call.params
    if support == "required" and not wanted:
        if call.modern:
            raise lacks_tasks()
        raise Refused(-32601, f"{name} runs as a task only")
    if support == "forbidden" or not wanted:
        return await tool(call, None)
    if name == "test_tool_with_task":
        answers = await call.ask({"user_name": NAME}, keep_state=True)
        call.session["user_name"] = filled(answers["user_name"])
    task = Task(call)
    task.start(tool(call, task))
    if call.modern:
        return {"resultType": "task", **task.described()}
    return {"task": task.described()}


def extensions(call: Call) -> Json:
    return call.capabilities.get("extensions") or {}


def lacks_tasks() -> Refused:
    refused = lacks("tasks")
    refused.error["data"] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return refused


# Methods


def found(call: Call) -> Task:
    if call.modern and EXTENSION not in extensions(call):
        raise lacks_tasks()
    task = kept.get(call.params["taskId"])
    if task is None or task.call.modern != call.modern:
        raise Refused(-32602, "Task not found")
    return task


async def get_task(call: Call) -> Json:
    task = found(call)
    return task.detailed() if call.modern else task.described()


async def task_result(call: Call) -> Json:
    task = found(call)
    task.fetched.set()
    try:
        await task.over.wait()
    finally:
        task.fetched.clear()
    if task.error is not None:
        raise Refused(task.error["code"], task.error["message"])
    if task.result is None:
        raise Refused(-32603, f"The task is {task.status}")
    return {**task.result, "_meta": {RELATED: {"taskId": task.id}}}


async def update_task(call: Call) -> Json:
    task = found(call)
    for key, answer in call.params["inputResponses"].items():
        if key in task.questions:
            task.questions.pop(key)[1].set_result(answer)
    return {}


async def cancel_task(call: Call) -> Json:
    task = found(call)
    if task.status not in TERMINAL:
        task.cancel()
    elif not call.modern:
        raise Refused(-32602, f"The task is {task.status} already")
    return {} if call.modern else task.described()


async def list_tasks(_call: Call) -> Json:
    return {"tasks": [task.described() for task in kept.values() if not task.call.modern]}


METHODS: dict[str, Callable[[Call], Awaitable[Json]]] = {
    "tasks/get": get_task,
    "tasks/result": task_result,
    "tasks/update": update_task,
    "tasks/cancel": cancel_task,
    "tasks/list": list_tasks,
}
LEGACY_ONLY = {"tasks/result", "tasks/list"}
