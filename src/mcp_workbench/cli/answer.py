"""A tool's answer as a person reads it: text as it is, everything else summed up or saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click

from mcp_workbench.cli.render import nearby, plain, say, say_json
from mcp_workbench.core.errors import InvalidCall

Json = dict[str, Any]

# Those that servers use and Python's table knows on some systems only.
_SUFFIXES = {
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/webm": ".weba",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/jpeg": ".jpg",
}
LONGEST_NAME = 80  # characters of a file name that a server proposed


def tell(result: Json, saved: dict[int, str]) -> None:
    """Print it on stdout; `saved` says where which block has gone."""
    blocks = _blocks(result)
    for number, block in enumerate(blocks):
        _tell_block(block, saved.get(number, ""))
    if not blocks and "structuredContent" in result:
        say_json(result["structuredContent"], pretty=True)


def save(result: Json, folder: str, tool: str) -> dict[int, str]:
    """Write images, sounds and resources into this folder; which block went where."""
    saved: dict[int, str] = {}
    for number, block in enumerate(_blocks(result)):
        found = _bytes(block)
        if found is not None:
            try:
                saved[number] = str(_written(Path(folder), _name(block, tool, number + 1), found))
            except OSError as error:
                raise InvalidCall(f"can't write into {folder}: {error.strerror}") from None
    return saved


def _written(folder: Path, name: str, data: bytes) -> Path:
    """Never over another file: the next free name is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _names(folder, name):
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError  # not reached: the names never end


def _names(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name
    stem, suffix = Path(name).stem, Path(name).suffix
    number = 2
    while True:
        yield folder / f"{stem}-{number}{suffix}"
        number += 1


def _name(block: Json, tool: str, number: int) -> str:
    """The last part of a resource's address, or the tool's name; a server chooses no folder."""
    inner = _inner(block)
    uri: Any = inner.get("uri")
    proposed = uri.partition("?")[0].rpartition("/")[2] if isinstance(uri, str) else ""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in proposed)
    if clean.strip("._-"):
        return clean.lstrip(".")[-LONGEST_NAME:]
    from mimetypes import guess_extension  # a table of hundreds: only where something is saved

    kind: Any = inner.get("mimeType")
    plain_kind = kind.partition(";")[0].strip().lower() if isinstance(kind, str) else ""
    suffix = _SUFFIXES.get(plain_kind) or guess_extension(plain_kind)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in tool)
    return f"{safe[-LONGEST_NAME:]}-{number}{suffix or '.bin'}"


def _bytes(block: Json) -> bytes | None:
    """What can be saved of a block; None for plain text and for what has no content."""
    import base64
    import binascii

    inner = _inner(block)
    for member in ("data", "blob"):
        value: Any = inner.get(member)
        if isinstance(value, str):
            try:
                return base64.b64decode("".join(value.split()), validate=True)
            except (binascii.Error, ValueError):
                return None
    text: Any = inner.get("text")
    return text.encode() if block.get("type") == "resource" and isinstance(text, str) else None


def _tell_block(block: Json, path: str) -> None:
    text: Any = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        # A terminal would obey what a server writes; a file or a pipe takes it as it is.
        click.echo(plain(text) if sys.stdout.isatty() else text, color=True)
        return
    inner = _inner(block)
    told = [block.get("type"), inner.get("mimeType"), inner.get("uri"), _size(inner)]
    where = f" saved as {nearby(path)}" if path else ""
    say(plain(f"[{' '.join(str(part) for part in told if part)}]{where}"))


def _size(block: Json) -> str:
    for member, unit, factor in (
        ("data", "bytes", 0.75),
        ("blob", "bytes", 0.75),
        ("text", "characters", 1),
    ):
        value: Any = block.get(member)
        if isinstance(value, str):
            length = len(value.rstrip("=")) if factor < 1 else len(value)
            return f"{int(length * factor)} {unit}"  # base64 holds three bytes in four letters
    return ""


def _inner(block: Json) -> Json:
    resource: Any = block.get("resource")
    return cast("Json", resource) if isinstance(resource, dict) else block


def _blocks(result: Json) -> list[Json]:
    blocks: Any = result.get("content")
    listed = cast("list[Any]", blocks) if isinstance(blocks, list) else []
    return [cast("Json", block) if isinstance(block, dict) else {} for block in listed]
