"""Questions of a server to a host: elicitation, sampling and roots.

A legacy server sends them as requests of its own, a modern one inside a result (`input_required`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mcp_workbench.core.raw_json import Members, read_elements, read_members
from mcp_workbench.core.spec import ServerAddress

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"
CAPABILITY_OF = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
ROUNDS = 10  # consecutive questions of one call; more is a loop
MOST_OPEN = 32  # unanswered questions of one server; of a modern one, in one result
MOST_A_MINUTE = 120  # questions of one server; a person reads no more, and a model costs money

# Called once with a result or an error; the other one is empty.
AnswerCallback = Callable[[msgspec.Raw | bytes, msgspec.Raw | bytes], None]

Value = TypeVar("Value")

encode = msgspec.json.encode
_DECLINED = b'{"action":"cancel"}'


class Question(msgspec.Struct, frozen=True):
    """One question of a server to the user, or to the model, of a host."""

    address: ServerAddress
    method: str
    params: bytes = b"{}"


class InputRequired(msgspec.Struct, frozen=True):
    """A modern server's result that asks for input."""

    questions: dict[str, Question]
    state: msgspec.Raw | None


class _Wanted(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _InputRequired(msgspec.Struct, frozen=True):
    inputRequests: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815 - as in the protocol
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


# Parts of what a host can be asked for: of elicitation, and of sampling.
_PARTS = ("form", "url", "tools", "context")


def asking(capabilities: Members) -> Members:
    """Return what servers may ask of a host with these capabilities."""
    return {key: capabilities[key] for key in CAPABILITY_OF.values() if key in capabilities}


def capability_names(capabilities: Members) -> tuple[str, ...]:
    """Return the names of what a host can be asked for: `elicitation`, `elicitation.url`, …"""
    names = list(capabilities)
    for key, value in capabilities.items():
        try:
            parts = read_members(value)
        except msgspec.DecodeError:
            continue
        names += [f"{key}.{part}" for part in _PARTS if part in parts]
    return tuple(sorted(names))


def may_ask(method: str, capabilities: Members) -> bool:
    return CAPABILITY_OF.get(method, "") in capabilities


def may_put(question: Question, capabilities: Members) -> bool:
    """The same for one question: a host that supports forms need not support URLs."""
    if question.method != ELICIT or not is_url(question.params):
        return may_ask(question.method, capabilities)
    try:
        return "url" in read_members(capabilities.get("elicitation", b"{}"))
    except msgspec.DecodeError:
        return False


def takes_forms(capabilities: Members) -> bool:
    """Whether the host shows forms: it declares no part of elicitation, or this one."""
    try:
        parts = read_members(capabilities["elicitation"])
    except (KeyError, msgspec.DecodeError):
        return False
    return not parts or "form" in parts


class _Answered(msgspec.Struct, frozen=True):
    action: str = ""
    content: msgspec.Raw = msgspec.Raw(b"{}")


def answered_action(result: msgspec.Raw | bytes) -> str:
    """What the user did with the question: `accept`, `decline` or `cancel`; empty if that is not said."""
    try:
        return msgspec.json.decode(result, type=_Answered).action
    except msgspec.DecodeError:
        return ""


def answered_content(result: msgspec.Raw | bytes) -> Members:
    """The fields of a form that the user has sent; none if it was not accepted."""
    try:
        answer = msgspec.json.decode(result, type=_Answered)
        return read_members(answer.content) if answer.action == "accept" else {}
    except msgspec.DecodeError:
        return {}


class _Mode(msgspec.Struct, frozen=True):
    mode: str = "form"


def is_url(params: bytes) -> bool:
    """Whether this elicitation asks the user to open a URL."""
    try:
        return msgspec.json.decode(params, type=_Mode).mode == "url"
    except msgspec.DecodeError:
        return False


def for_legacy_host(question: Question, id: str) -> Question:
    """Return a modern server's question for a legacy host, which requires an id for each URL."""
    if question.method != ELICIT or not is_url(question.params):
        return question
    members = read_members(question.params)
    members.setdefault("elicitationId", msgspec.Raw(encode(id)))
    return msgspec.structs.replace(question, params=encode(members))


class _UrlData(msgspec.Struct, frozen=True):
    elicitations: msgspec.Raw


class _UrlError(msgspec.Struct, frozen=True):
    data: _UrlData


def read_needed(address: ServerAddress, error: msgspec.Raw) -> dict[str, Question]:
    """Return the questions of a legacy server's error that requires the user to open URLs first.

    Raises msgspec.DecodeError if it is malformed.
    """
    elicitations = msgspec.json.decode(error, type=_UrlError).data.elicitations
    elements = read_elements(elicitations)
    if len(elements) > MOST_OPEN:
        raise msgspec.DecodeError(f"{len(elements)} at once; {MOST_OPEN} are allowed")
    questions: dict[str, Question] = {}
    for number, raw in enumerate(elements, 1):
        members = read_members(raw)
        members.pop("elicitationId", None)
        members["mode"] = msgspec.Raw(b'"url"')
        questions[f"q{number}"] = asked_by(address, ELICIT, encode(members))
    return questions


class _Progress(msgspec.Struct, frozen=True):
    progress: float


def progress_of(params: msgspec.Raw) -> float | None:
    """Return the progress of a call; None if it has none."""
    try:
        return msgspec.json.decode(params, type=_Progress).progress
    except msgspec.DecodeError:
        return None


def asked_by(address: ServerAddress, method: str, params: msgspec.Raw | bytes) -> Question:
    """Return the question for its host, with the server's name: the user must see who asks."""
    if method not in (SAMPLE, ELICIT):
        return Question(address, method, bytes(params) or b"{}")
    members = read_members(params)
    members.pop("task", None)  # we declare no tasks to servers: the host must answer the question
    if method == SAMPLE:
        return Question(address, method, _sampled_by(address, members))
    try:
        message = msgspec.json.decode(members.get("message", b'""'), type=str)
    except msgspec.ValidationError:
        message = ""
    members["message"] = msgspec.Raw(encode(f"[{address}] {message}"))
    return Question(address, method, encode(members))


def _sampled_by(address: ServerAddress, members: Members) -> bytes:
    """Mark a sampling request with the server's name: users see its messages before they approve it.

    The name is put before the first text of the messages; if there is none, before the system prompt.
    """
    mark = f"[{address}] "
    messages = _read(members, "messages", list[msgspec.Raw], list[msgspec.Raw]())
    for number, message in enumerate(messages):
        marked = _marked_message(message, mark)
        if marked is not None:
            messages[number] = marked
            return encode({**members, "messages": messages})
    prompt = _read(members, "systemPrompt", str, "")
    return encode({**members, "systemPrompt": f"{mark}{prompt}"})


def _marked_message(message: msgspec.Raw, mark: str) -> msgspec.Raw | None:
    """Return the message with the mark before its first text; None if it has no text."""
    try:
        members = read_members(message)
        content = members["content"]
        blocks = _read(members, "content", list[msgspec.Raw], [content])
        for number, block in enumerate(blocks):
            parts = read_members(block)
            if _read(parts, "type", str, "") != "text":
                continue
            text = msgspec.json.decode(parts["text"], type=str)
            blocks[number] = msgspec.Raw(encode({**parts, "text": f"{mark}{text}"}))
            several = bytes(content).lstrip().startswith(b"[")
            return msgspec.Raw(encode({**members, "content": blocks if several else blocks[0]}))
    except (KeyError, msgspec.DecodeError):
        pass  # the host reports what is wrong with it
    return None


def _read(members: Members, key: str, type: type[Value], default: Value) -> Value:
    try:
        return msgspec.json.decode(members[key], type=type)
    except (KeyError, msgspec.DecodeError):
        return default


def read_input_required(address: ServerAddress, result: msgspec.Raw) -> InputRequired:
    """Return the questions of a modern result. Raises msgspec.DecodeError if it is malformed."""
    required = msgspec.json.decode(result, type=_InputRequired)
    members = read_members(required.inputRequests)
    if len(members) > MOST_OPEN:
        many = len(members)
        raise msgspec.DecodeError(f"it asks {many} questions at once; {MOST_OPEN} are allowed")
    questions: dict[str, Question] = {}
    for key, raw in members.items():
        wanted = msgspec.json.decode(raw, type=_Wanted)
        questions[key] = asked_by(address, wanted.method, wanted.params)
    return InputRequired(questions, required.requestState or None)


def input_required(questions: dict[str, Question], state: str | None) -> bytes:
    """Return the result that asks a modern host these questions."""
    wanted = {
        key: {"method": question.method, "params": msgspec.Raw(question.params)}
        for key, question in questions.items()
    }
    result: dict[str, Any] = {"resultType": "input_required", "inputRequests": wanted}
    if state is not None:
        result["requestState"] = state
    return encode(result)


def unanswered(method: str) -> bytes | None:
    """Return the result for a question without an answer; None if it has to be an error."""
    return _DECLINED if method == ELICIT else None
