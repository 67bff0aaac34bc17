"""Tasks: calls that a server answers with a handle at once, and whose result is fetched later.

Revision 2025-11-25 has them as an experiment: the host asks for a task (`params.task`), where the definition of the
tool allows or requires it, and fetches the result with `tasks/result`. For 2026-07-28 they are an extension: the
server decides, if the host declares it, and `tasks/get` has the result inside. Pure: what messages say, and what the
other era would say.
"""

from typing import Any, Literal

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import Members, changed, read_members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.elicitation import InputRequired, read_input_required
from mcp_workbench.protocol.extensions import MEMBER, TASKS, read_extensions
from mcp_workbench.protocol.handshake import META, STAMPS
from mcp_workbench.protocol.translation import complete

encode = msgspec.json.encode

GET, RESULT, CANCEL = "tasks/get", "tasks/result", "tasks/cancel"
UPDATE, LIST = "tasks/update", "tasks/list"
NOTICE, LEGACY_NOTICE = "notifications/tasks", "notifications/tasks/status"
RELATED = f"{META}related-task"  # in `_meta` of legacy messages that belong to a task
WORKING, INPUT_REQUIRED, COMPLETED = "working", "input_required", "completed"
FAILED, CANCELLED = "failed", "cancelled"
TERMINAL = frozenset({COMPLETED, FAILED, CANCELLED})
LONGEST_ID = 1024  # characters of a server's own id
LONGEST_NOTICE = 2 << 20  # bytes of an acknowledgement that is read
LONGEST_ERROR = 64 << 10  # bytes of an error about capabilities that is read

TaskSupport = Literal["forbidden", "optional", "required"]

_RELATED = RELATED.encode()
_TASK = b'"task"'
_ANY_TASK = msgspec.Raw(b"{}")  # the server chooses how long it keeps the task


# What tools and hosts say about tasks


class _Execution(msgspec.Struct, frozen=True):
    taskSupport: str = ""  # noqa: N815 - the protocol's name


class _Tool(msgspec.Struct, frozen=True):
    execution: _Execution = _Execution()


def task_support(definition: bytes) -> TaskSupport:
    """Whether a legacy server runs this tool as a task, as its definition says."""
    if b"taskSupport" not in definition:
        return "forbidden"
    try:
        said = msgspec.json.decode(definition, type=_Tool).execution.taskSupport
    except (msgspec.DecodeError, RecursionError):
        return "forbidden"
    return "required" if said == "required" else "optional" if said == "optional" else "forbidden"


def optional_task(definition: bytes) -> bytes:
    """Return a definition for hosts: a required task becomes an optional one, because we wait for it if need be."""
    if task_support(definition) != "required":
        return definition
    execution = changed(read_members(definition)["execution"], {"taskSupport": b'"optional"'})
    return changed(definition, {"execution": execution})


def declares_tasks(capabilities: msgspec.Raw | bytes) -> bool:
    """Whether these capabilities of a host have the extension."""
    if TASKS.encode() not in bytes(capabilities):
        return False
    try:
        return TASKS in read_extensions(read_members(capabilities))
    except msgspec.DecodeError:
        return False


def with_tasks(capabilities: msgspec.Raw | bytes) -> msgspec.Raw:
    """Return these capabilities with the extension, which we use on behalf of the host."""
    members = read_members(capabilities)
    extensions: dict[str, Any] = {**read_extensions(members), TASKS: {}}
    return msgspec.Raw(encode({**members, MEMBER: extensions}))


class _Required(msgspec.Struct, frozen=True):
    extensions: dict[str, msgspec.Raw] = {}


class _ErrorData(msgspec.Struct, frozen=True):
    requiredCapabilities: _Required = _Required()  # noqa: N815


class _Error(msgspec.Struct, frozen=True):
    data: _ErrorData = _ErrorData()


def requires_tasks(error: msgspec.Raw) -> bool:
    """Whether the error of a missing capability (-32021) names this extension."""
    if len(error) > LONGEST_ERROR:
        return False
    try:
        known = msgspec.json.decode(error, type=_Error)
    except msgspec.DecodeError:
        return False
    return TASKS in known.data.requiredCapabilities.extensions


def missing_tasks() -> dict[str, Any]:
    """Return the `data` of the error for a host that does not declare the extension."""
    return {"requiredCapabilities": {MEMBER: {TASKS: {}}}}


# How a call becomes a task


class TaskWish(msgspec.Struct, frozen=True):
    """What a legacy server is asked for, and whether the host gets the handle or we wait for the result."""

    task: msgspec.Raw
    is_relayed: bool


def task_wish(support: TaskSupport, request: CallRequest, *, takes_tasks: bool) -> TaskWish | None:
    """Decide whether a legacy server runs this call as a task; `support` is that of its tool.

    A host that takes tasks gets the handle: a modern one always, a legacy one if it asks. For others we wait.
    """
    if support == "forbidden":
        return None
    if takes_tasks and request.modern_host:
        return TaskWish(_ANY_TASK, is_relayed=True)
    if takes_tasks and "task" in request.params:
        return TaskWish(request.params["task"], is_relayed=True)
    return TaskWish(_ANY_TASK, is_relayed=False) if support == "required" else None


# Tasks in messages


class Task(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A task as both eras describe it."""

    task_id: str
    status: str = WORKING
    status_message: str = ""
    created_at: str = ""
    last_updated_at: str = ""
    ttl: int | float | None = None  # milliseconds
    poll_interval: int | float | None = None

    def legacy(self, task_id: str) -> Members:
        """The members of a task for a legacy host."""
        return self._members(task_id, "ttl", "pollInterval")

    def modern(self, task_id: str) -> Members:
        """The members of a task for a modern host."""
        return self._members(task_id, "ttlMs", "pollIntervalMs")

    def _members(self, task_id: str, ttl: str, interval: str) -> Members:
        values: dict[str, Any] = {"taskId": task_id, "status": self.status}
        if self.status_message:
            values["statusMessage"] = self.status_message
        values |= {"createdAt": self.created_at, "lastUpdatedAt": self.last_updated_at}
        values[ttl] = None if self.ttl is None else int(self.ttl)
        if self.poll_interval is not None and self.poll_interval > 0:
            values[interval] = max(1, int(self.poll_interval))
        return {key: msgspec.Raw(encode(value)) for key, value in values.items()}


class _Created(msgspec.Struct, frozen=True):
    task: Task | None = None


def created_task(result: msgspec.Raw) -> Task | None:
    """Return the task that a legacy server has created; None if this is an ordinary result."""
    if _TASK not in bytes(memoryview(result)[: 1 << 16]):
        return None
    try:
        return msgspec.json.decode(result, type=_Created).task
    except (msgspec.DecodeError, RecursionError):
        return None


def read_task(result: msgspec.Raw | bytes) -> Task:
    """Read a legacy `tasks/get` or `tasks/cancel` result. Raises msgspec.DecodeError."""
    return msgspec.json.decode(result, type=Task)


class ModernTask(msgspec.Struct, frozen=True, rename="camel"):
    """A task in a modern result, with what belongs to its status."""

    result_type: str = ""
    task_id: str = ""
    status: str = ""
    created_at: str = ""
    ttl_ms: int | float | None = None
    poll_interval_ms: int | float | None = None
    status_message: str = ""
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


def read_modern_task(result: msgspec.Raw | bytes) -> ModernTask:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(result, type=ModernTask)


def modern_created(result: msgspec.Raw) -> ModernTask | None:
    """Return the task that a modern server has created; None if this is another result."""
    try:
        task = read_modern_task(result)
    except (msgspec.DecodeError, RecursionError):
        return None
    return task if task.result_type == "task" and task.task_id else None


def task_questions(address: ServerAddress, result: msgspec.Raw) -> InputRequired:
    """Return the open questions of a modern task. Raises msgspec.DecodeError if they are malformed."""
    return read_input_required(address, result)


# Notifications


class _Noticed(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815 - the protocol's name


def noticed_task(params: msgspec.Raw | bytes) -> str:
    """Return the server's id of the task whose state a notification has; empty if it can't be read."""
    try:
        return msgspec.json.decode(params, type=_Noticed).taskId
    except (msgspec.DecodeError, RecursionError):
        return ""


class _Agreed(msgspec.Struct, frozen=True):
    taskIds: list[str] = []  # noqa: N815


class _Acknowledgement(msgspec.Struct, frozen=True):
    notifications: _Agreed = _Agreed()


def acknowledged_tasks(params: msgspec.Raw | bytes) -> frozenset[str]:
    """Return the tasks whose changes a modern server has agreed to announce."""
    if len(params) > LONGEST_NOTICE:
        return frozenset()
    try:
        known = msgspec.json.decode(params, type=_Acknowledgement)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    return frozenset(known.notifications.taskIds)


def detailed_task(result: msgspec.Raw | bytes) -> Members:
    """Return the state of a task for `notifications/tasks`, from that of `tasks/get`."""
    members = read_members(result)
    return {key: raw for key, raw in members.items() if key not in ("resultType", "_meta")}


def progress_of_task(state: Members) -> tuple[bytes, ...]:
    """Return what a host has to know of a task: if it is the same as before, nothing has changed."""
    questions = read_members(state.get("inputRequests", b"{}"))
    told = [bytes(state.get(key, b"")) for key in ("status", "statusMessage")]
    return (*told, *(key.encode() for key in sorted(questions)))


# Messages that belong to a task (legacy)


class _RelatedTask(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815


def related_task(params: msgspec.Raw | bytes) -> str:
    """Return the server's id of the task that this message belongs to; empty if there is none."""
    if _RELATED not in bytes(params):
        return ""
    try:
        meta = read_members(read_members(params)["_meta"])
        return msgspec.json.decode(meta[RELATED], type=_RelatedTask).taskId
    except (KeyError, msgspec.DecodeError):
        return ""


def with_related(message: msgspec.Raw | bytes, task_id: str = "") -> bytes:
    """Return a result or parameters with another id of their task, or without any."""
    raw = bytes(message)
    if _RELATED not in raw:
        return raw
    try:
        meta = read_members(read_members(raw)["_meta"])
    except (KeyError, msgspec.DecodeError):
        return raw
    if RELATED not in meta:
        return raw
    if task_id:
        meta[RELATED] = msgspec.Raw(encode({"taskId": task_id}))
    else:
        del meta[RELATED]
    return changed(raw, {"_meta": encode(meta) if meta else None})


def about_task(params: bytes, task_id: str) -> bytes:
    """Return the parameters of a question that names its task."""
    members = read_members(params)
    meta: dict[str, Any] = {**read_members(members.get("_meta", b"{}"))}
    meta[RELATED] = {"taskId": task_id}
    return encode({**members, "_meta": meta})


def inlined_result(result: msgspec.Raw | bytes) -> bytes:
    """Return a legacy task's result as a modern `tasks/get` has it inside."""
    return complete(with_related(result), STAMPS)
