"""Prompts, resources and templates of many servers, under names that are unique among them."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from mcp_workbench.core import apps, skills
from mcp_workbench.core.raw_json import (
    LONGEST_ENTRY,
    Steps,
    TooComplex,
    has_few_members,
    read_members,
    read_name,
)
from mcp_workbench.core.spec import SEPARATOR, ServerAddress

PrimitiveKind = Literal["prompts", "resources", "templates", "skills"]
# The member of a primitive that identifies it.
KEYS: dict[PrimitiveKind, str] = {
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
    "skills": "uri",
}

SCHEME = "mcp-workbench://"
STEPS = 300_000  # to compare a URI with templates: one for each position in it
CHARACTERS = 8  # of a template that are read per step


class Primitive(msgspec.Struct, frozen=True):
    """One prompt, resource or template: the key its server gives it, and its JSON as received."""

    key: str
    raw: bytes


class PrimitiveRef(msgspec.Struct, frozen=True):
    """Names a primitive: its server, and the name or URI that the server gives it."""

    address: ServerAddress
    key: str


class ServerPrimitives(msgspec.Struct, frozen=True):
    """The primitives of one kind of one server, in the order of the server."""

    address: ServerAddress
    offers: dict[str, Primitive] = {}


def read_primitives(kind: PrimitiveKind, raws: list[msgspec.Raw]) -> dict[str, Primitive]:
    """Returns the usable primitives of a page: those without a key, too long or named twice are skipped."""
    primitives: dict[str, Primitive] = {}
    for raw in raws:
        if len(raw) > LONGEST_ENTRY:
            continue
        try:
            key = read_name(read_members(raw)[KEYS[kind]])
        except (KeyError, msgspec.DecodeError):
            continue
        if key and key not in primitives and has_few_members(raw):
            primitives[key] = Primitive(key, msgspec.json.format(bytes(raw), indent=-1))
    return primitives


# Prompts: flat names


def owners_of_flat_name(name: str, servers: Iterable[ServerAddress]) -> list[PrimitiveRef]:
    """Returns every reading of a flat name: in proxy mode names may contain the separator."""
    owners: list[PrimitiveRef] = []
    for address in servers:
        start = f"{address.toolbox}{SEPARATOR}{address.server}{SEPARATOR}"
        if name.startswith(start) and len(name) > len(start):
            owners.append(PrimitiveRef(address, name.removeprefix(start)))
    return owners


# Resources: their own URIs while these are unique, else prefixed with their server


def addressed(owner: PrimitiveRef) -> str:
    """Returns the URI, or URI template, prefixed with its server. This form is always accepted.

    The URI itself is unchanged, so that an expanded template is right in both forms.
    """
    return f"{SCHEME}{owner.address.toolbox}/{owner.address.server}/{owner.key}"


def addressed_like(uri: str, owner: PrimitiveRef) -> str:
    """Returns the prefixed URI of a primitive in the form of `uri`: of an app, of a skill, or any other."""
    if uri.startswith(skills.SCHEME):
        return skills.skill_address(owner.address, owner.key)
    is_page = uri.startswith(apps.ADDRESSED) and owner.key.startswith(apps.SCHEME)
    return apps.page_address(owner.address, owner.key) if is_page else addressed(owner)


def read_addressed(uri: str) -> PrimitiveRef | None:
    """Splits a prefixed URI; None for any other URI."""
    if named := apps.read_page_address(uri) or skills.read_skill_address(uri):
        return PrimitiveRef(*named)
    if not uri.startswith(SCHEME):
        return None
    parts = uri.removeprefix(SCHEME).split("/", 2)
    if len(parts) < 3 or not all(parts):
        return None
    return PrimitiveRef(ServerAddress(parts[0], parts[1]), parts[2])


def shown_uris(
    lists: Iterable[ServerPrimitives], *, pages: bool = False
) -> dict[str, PrimitiveRef]:
    """Returns the URIs that a host sees: the first owner of a URI keeps it, later ones are prefixed.

    A host that shows apps gets the address of each of their `pages`.
    """
    shown: dict[str, PrimitiveRef] = {}
    for primitives in lists:
        for key in primitives.offers:
            owner = PrimitiveRef(primitives.address, key)
            plain = key not in shown and not key.startswith((SCHEME, apps.ADDRESSED))
            if pages and key.startswith(apps.SCHEME):
                shown[apps.page_address(owner.address, key)] = owner
            else:
                shown[key if plain else addressed(owner)] = owner
    return shown


def owner_by_template(uri: str, lists: Iterable[ServerPrimitives]) -> PrimitiveRef | None:
    """Returns the owner of a template that this URI may be an expansion of, or is itself.

    Also None if comparing the URI with all templates would take too many steps.
    """
    steps = Steps(STEPS)
    try:
        for primitives in lists:
            if any(
                uri == template or matches(template, uri, steps) for template in primitives.offers
            ):
                return PrimitiveRef(primitives.address, uri)
    except TooComplex:
        return None
    return None


_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")


def matches(template: str, uri: str, steps: Steps | None = None) -> bool:
    """Can the template expand to this URI? Raises TooComplex if that takes too many steps."""
    if not uri.startswith(template[: template.find("{")]):
        return template == uri
    steps = steps or Steps(STEPS)
    steps.take(4 + len(template) // CHARACTERS)
    ends = {0}  # positions in the URI where the parts so far may end
    pieces = _EXPRESSION.split(template)
    if len(pieces) == 1:
        return template == uri
    for number, piece in enumerate(pieces):
        if not piece and number % 2 == 0:
            continue
        steps.take(len(ends) if number % 2 == 0 else 1 + len(uri) - min(ends))
        if number % 2 == 0:
            ends = {end + len(piece) for end in ends if uri.startswith(piece, end)}
        else:
            ends = _after_expression(uri, ends, crosses=piece != "")
        if not ends:
            return False
    return len(uri) in ends


def _after_expression(uri: str, ends: set[int], *, crosses: bool) -> set[int]:
    """A plain expression matches one or more characters except slashes; the others match anything."""
    reached: set[int] = set()
    if crosses:
        reached.update(range(min(ends), len(uri) + 1))
        return reached
    open_since = False
    for place in range(min(ends), len(uri)):
        open_since = (open_since or place in ends) and uri[place] != "/"
        if open_since:
            reached.add(place + 1)
    return reached
