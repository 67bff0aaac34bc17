"""Messages between a command, such as `call`, and the daemon whose servers it uses.

They follow the command's request on the control socket (`control.COMMAND`) once it was welcomed: a length
of four bytes, big-endian, and JSON. Requests have numbers and are answered in any order. Errors keep the
fields that decide how a command reports them.
"""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader, StreamWriter

import msgspec

from mcp_workbench.core.errors import (
    InvalidCall,
    NotFound,
    ServerError,
    ServerUnavailable,
    WorkbenchError,
)
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.protocol.elicitation import Question
from mcp_workbench.search.queries import Query
from mcp_workbench.transport.json_text import too_deep
from mcp_workbench.transport.jsonrpc import TOO_DEEP

_HEAD = 4  # bytes of a length
LARGEST = (1 << 32) - 1  # bytes that a length can name


# From the command


class Survey(msgspec.Struct, frozen=True, tag=True):
    """Wants a `ServerReport`; a `fresh` one has been asked for just now, whatever was known."""

    id: int
    address: ServerAddress
    fresh: bool = False


class Find(msgspec.Struct, frozen=True, tag=True):
    """Wants a `SearchResult`."""

    id: int
    query: Query


class CallTool(msgspec.Struct, frozen=True, tag=True):
    """Wants a tool's result."""

    id: int
    tool: ToolIdentifier
    arguments: msgspec.Raw
    progress: bool = False  # wants progress notifications, too
    parent: str = ""  # the script that calls


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What the user answers to the question of this number; null: nothing."""

    id: int
    answer: msgspec.Raw


# From the daemon


class Result(msgspec.Struct, frozen=True, tag=True):
    """The request of this number has succeeded."""

    id: int
    value: msgspec.Raw


class ErrorFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """A WorkbenchError without its class."""

    kind: str
    code: str
    message: str
    hint: str = ""
    reason: str = ""
    retry_after: float | None = None
    may_have_run: bool = False
    number: int = 0
    error: bytes = b""


class RefuseCall(msgspec.Struct, frozen=True, tag=True):
    """From the command: it does not make this call, because of this error; it is to be recorded."""

    id: int
    tool: ToolIdentifier
    arguments: msgspec.Raw
    error: ErrorFields


class CommandFailed(msgspec.Struct, frozen=True, tag=True):
    """The request of this number has failed."""

    id: int
    error: ErrorFields


class Progress(msgspec.Struct, frozen=True, tag=True):
    """News of a request that is under way."""

    id: int
    params: msgspec.Raw


class PutQuestion(msgspec.Struct, frozen=True, tag=True):
    """A server asks the user something."""

    id: int
    question: Question


class WithdrawQuestion(msgspec.Struct, frozen=True, tag=True):
    """The question of this number needs no answer any more."""

    id: int


Request = Survey | Find | CallTool | RefuseCall | Answer
Response = Result | CommandFailed | Progress | PutQuestion | WithdrawQuestion


# Errors


def error_fields(error: WorkbenchError) -> ErrorFields:
    """Return what identifies an error on the other side."""
    return ErrorFields(
        kind=type(error).__name__,
        code=error.code,
        message=error.message,
        hint=error.hint,
        reason=getattr(error, "reason", ""),
        retry_after=error.retry_after,
        may_have_run=error.may_have_run,
        number=getattr(error, "number", 0),
        error=getattr(error, "error", b""),
    )


def error_of(fields: ErrorFields) -> WorkbenchError:
    """Return the error that a command reports as if it had made the request itself."""
    match fields.kind:
        case "NotFound":
            return NotFound(fields.code, fields.message, hint=fields.hint)
        case "InvalidCall":
            return InvalidCall(fields.message, hint=fields.hint)
        case "ServerError":
            return ServerError(fields.number, fields.message, fields.error)
        case "ServerUnavailable":
            error = ServerUnavailable(
                fields.code, fields.message, reason=fields.reason, retry_after=fields.retry_after
            )
            error.hint = fields.hint
            return error
        case _:
            other = WorkbenchError(
                fields.message, hint=fields.hint, may_have_run=fields.may_have_run
            )
            other.code, other.retry_after = fields.code, fields.retry_after
            return other


# Bytes


class BadMessage(Exception):
    """The peer does not speak this protocol, or sends too much at once."""


def read_request(data: bytes) -> Request:
    """Return a command's message. Raises BadMessage."""
    try:
        request = msgspec.json.decode(data, type=Request)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
    # Arguments are checked where those of hosts are.
    if isinstance(request, Answer) and too_deep(bytes(request.answer)):
        raise BadMessage(TOO_DEEP)
    return request


async def read_message(reader: StreamReader, most: int = LARGEST) -> bytes:
    """Return the JSON of the next message; empty at the end. Raises BadMessage for a longer one."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD), "big")
        if size > most:
            raise BadMessage(f"a message of {size} bytes")
        return await reader.readexactly(size)
    except (IncompleteReadError, ConnectionError):
        return b""


def write_message(writer: StreamWriter, message: Request | Response) -> None:
    """Queue a message; one that nobody reads any more is dropped."""
    body = msgspec.json.encode(message)
    if not writer.is_closing():
        writer.write(len(body).to_bytes(_HEAD, "big") + body)
