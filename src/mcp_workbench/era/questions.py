"""What a server asks a host: in a request of its own (legacy) or inside a result (modern)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mcp_workbench.bounded import Members, read_elements, read_members
from mcp_workbench.core.names import ServerAddress

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"
CAPABILITY_OF = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
VIEWS = "io.modelcontextprotocol/ui"
ROUNDS = 10  # questions in a row of one call; more is a loop
MOST_OPEN = 32  # questions of one server that wait for an answer, of a modern one in one result
MOST_A_MINUTE = 120  # questions of one server; a person reads no more, and a model costs

# Called once with a result, or with an error; the other one is empty.
Answered = Callable[[msgspec.Raw | bytes, msgspec.Raw | bytes], None]

Value = TypeVar("Value")

encode = msgspec.json.encode
_DECLINED = b'{"action":"cancel"}'


class Question(msgspec.Struct, frozen=True):
    """One thing that a server wants from whoever sits before the host."""

    address: ServerAddress
    method: str
    params: bytes = b"{}"


class InputRequired(msgspec.Struct, frozen=True):
    """A modern server's result that asks instead of answering."""

    questions: dict[str, Question]
    state: msgspec.Raw | None


class _Wanted(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _InputRequired(msgspec.Struct):
    inputRequests: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815 - the wire's word
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def asking(capabilities: Members) -> Members:
    """Of what a host can do, what a server may ask for, and whether it shows views of tools."""
    known = {key: capabilities[key] for key in CAPABILITY_OF.values() if key in capabilities}
    try:
        extensions = read_members(capabilities.get("extensions", b"{}"))
    except msgspec.DecodeError:
        return known
    if VIEWS in extensions:  # the only extension that we carry: its resources find their server
        known["extensions"] = msgspec.Raw(encode({VIEWS: extensions[VIEWS]}))
    return known


def may_ask(method: str, capabilities: Members) -> bool:
    return CAPABILITY_OF.get(method, "") in capabilities


def may_put(question: Question, capabilities: Members) -> bool:
    """The same for one question: a host that fills in forms need not be able to open addresses."""
    if question.method != ELICIT or not is_address(question.params):
        return may_ask(question.method, capabilities)
    try:
        return "url" in read_members(capabilities.get("elicitation", b"{}"))
    except msgspec.DecodeError:
        return False


class _Mode(msgspec.Struct):
    mode: str = "form"


def is_address(params: bytes) -> bool:
    """Does this elicitation send a person to an address?"""
    try:
        return msgspec.json.decode(params, type=_Mode).mode == "url"
    except msgspec.DecodeError:
        return False


def for_legacy_host(question: Question, id: str) -> Question:
    """A modern server's question as a legacy host gets it, which wants a name for each address."""
    if question.method != ELICIT or not is_address(question.params):
        return question
    members = read_members(question.params)
    members.setdefault("elicitationId", msgspec.Raw(encode(id)))
    return msgspec.structs.replace(question, params=encode(members))


class _Needed(msgspec.Struct):
    elicitations: msgspec.Raw


class _NeedsAddress(msgspec.Struct):
    data: _Needed


def read_needed(address: ServerAddress, error: msgspec.Raw) -> dict[str, Question]:
    """The questions of a legacy server's error that wants a person to visit addresses first.

    Raises msgspec.DecodeError where it has no usable form.
    """
    found = msgspec.json.decode(error, type=_NeedsAddress).data.elicitations
    elements = read_elements(found)
    if len(elements) > MOST_OPEN:
        raise msgspec.DecodeError(f"{len(elements)} at once; {MOST_OPEN} are allowed")
    questions: dict[str, Question] = {}
    for number, raw in enumerate(elements, 1):
        members = read_members(raw)
        members.pop("elicitationId", None)
        members["mode"] = msgspec.Raw(b'"url"')
        questions[f"q{number}"] = asked_by(address, ELICIT, encode(members))
    return questions


class _Progress(msgspec.Struct):
    progress: float


def progress_of(params: msgspec.Raw) -> float | None:
    """How far a call is; None where it does not say."""
    try:
        return msgspec.json.decode(params, type=_Progress).progress
    except msgspec.DecodeError:
        return None


def asked_by(address: ServerAddress, method: str, params: msgspec.Raw | bytes) -> Question:
    """The question as its host gets it: a person must see who is asking."""
    if method == SAMPLE:
        return Question(address, method, _sampled_by(address, read_members(params)))
    if method != ELICIT:
        return Question(address, method, bytes(params) or b"{}")
    members = read_members(params)
    try:
        message = msgspec.json.decode(members.get("message", b'""'), type=str)
    except msgspec.ValidationError:
        message = ""
    members["message"] = msgspec.Raw(encode(f"[{address}] {message}"))
    return Question(address, method, encode(members))


def _sampled_by(address: ServerAddress, members: Members) -> bytes:
    """A question to the host's model, of which people see the messages before they let it pass.

    The first text of the messages begins with the name of the server; where there is none, the text
    that the model is instructed with does.
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
    """The message with the mark before its first text; None where it has no text."""
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
        pass  # the host says what is wrong with it
    return None


def _read(members: Members, key: str, type: type[Value], default: Value) -> Value:
    try:
        return msgspec.json.decode(members[key], type=type)
    except (KeyError, msgspec.DecodeError):
        return default


def read_input_required(address: ServerAddress, result: msgspec.Raw) -> InputRequired:
    """The questions in a modern result. Raises msgspec.DecodeError where it has no usable form."""
    found = msgspec.json.decode(result, type=_InputRequired)
    members = read_members(found.inputRequests)
    if len(members) > MOST_OPEN:
        many = len(members)
        raise msgspec.DecodeError(f"it asks {many} questions at once; {MOST_OPEN} are allowed")
    questions: dict[str, Question] = {}
    for key, raw in members.items():
        wanted = msgspec.json.decode(raw, type=_Wanted)
        questions[key] = asked_by(address, wanted.method, wanted.params)
    return InputRequired(questions, found.requestState or None)


def input_required(questions: dict[str, Question], state: str | None) -> bytes:
    """The result that puts questions to a modern host."""
    wanted = {
        key: {"method": question.method, "params": msgspec.Raw(question.params)}
        for key, question in questions.items()
    }
    result: dict[str, Any] = {"resultType": "input_required", "inputRequests": wanted}
    if state is not None:
        result["requestState"] = state
    return encode(result)


def unanswered(method: str) -> bytes | None:
    """What a server hears in place of an answer; None where only an error will do."""
    return _DECLINED if method == ELICIT else None
