"""What servers offer beside tools, under names that are unique in front of many servers."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from mcp_workbench.bounded import has_few_members, read_members
from mcp_workbench.core.names import SEPARATOR, ServerAddress
from mcp_workbench.core.steps import Steps, TooComplex

Kind = Literal["prompts", "resources", "templates"]
# The member of an offer that names it.
KEYS: dict[Kind, str] = {"prompts": "name", "resources": "uri", "templates": "uriTemplate"}

SCHEME = "mcp-workbench://"
STEPS = 300_000  # for the templates that a URI is compared with: one for each place in it
CHARACTERS = 8  # of a template that are read in one step


class Offer(msgspec.Struct, frozen=True):
    """One prompt, resource or template: the server's own key of it, and its JSON as received."""

    key: str
    raw: bytes


class Owned(msgspec.Struct, frozen=True):
    """Something of one server, by the server's own name or URI."""

    address: ServerAddress
    key: str


class Shelf(msgspec.Struct, frozen=True):
    """The offers of one kind that one server has, in its own order."""

    address: ServerAddress
    offers: dict[str, Offer] = {}


def read_offers(kind: Kind, raws: list[msgspec.Raw]) -> dict[str, Offer]:
    """The usable ones of a page: one without a name, or with a name twice, is left out alone."""
    found: dict[str, Offer] = {}
    for raw in raws:
        try:
            key = msgspec.json.decode(read_members(raw)[KEYS[kind]], type=str)
        except (KeyError, msgspec.DecodeError):
            continue
        if key and key not in found and has_few_members(raw):
            found[key] = Offer(key, msgspec.json.format(bytes(raw), indent=-1))
    return found


# Prompts: flat names


def owners_of_flat_name(name: str, servers: Iterable[ServerAddress]) -> list[Owned]:
    """Every way to read a flat name. In proxy mode names may hold the separator: there can be two."""
    found: list[Owned] = []
    for address in servers:
        start = f"{address.toolbox}{SEPARATOR}{address.server}{SEPARATOR}"
        if name.startswith(start) and len(name) > len(start):
            found.append(Owned(address, name.removeprefix(start)))
    return found


# Resources: their own URIs while these are unique, else with their owner in front


def addressed(owner: Owned) -> str:
    """The form of a URI, or of a template of URIs, that names its server; it always works.

    The URI itself follows as it is: what a template is expanded to is then right in both forms.
    """
    return f"{SCHEME}{owner.address.toolbox}/{owner.address.server}/{owner.key}"


def read_addressed(uri: str) -> Owned | None:
    """Take such a form apart; None for any other URI."""
    if not uri.startswith(SCHEME):
        return None
    parts = uri.removeprefix(SCHEME).split("/", 2)
    if len(parts) < 3 or not all(parts):
        return None
    return Owned(ServerAddress(parts[0], parts[1]), parts[2])


def shown_uris(shelves: Iterable[Shelf]) -> dict[str, Owned]:
    """What a host sees: the first owner of a URI keeps it, later ones are addressed."""
    shown: dict[str, Owned] = {}
    for shelf in shelves:
        for key in shelf.offers:
            owner = Owned(shelf.address, key)
            plain = key not in shown and not key.startswith(SCHEME)
            shown[key if plain else addressed(owner)] = owner
    return shown


def owner_by_template(uri: str, shelves: Iterable[Shelf]) -> Owned | None:
    """Whose template this URI may have been made from; the template itself counts as made from it.

    None, too, where so many templates are so long that it would take too many steps to tell.
    """
    steps = Steps(STEPS)
    try:
        for shelf in shelves:
            if any(uri == template or matches(template, uri, steps) for template in shelf.offers):
                return Owned(shelf.address, uri)
    except TooComplex:
        return None
    return None


_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")


def matches(template: str, uri: str, steps: Steps | None = None) -> bool:
    """Could the template be expanded to this URI? Raises TooComplex where it takes too many steps."""
    if not uri.startswith(template[: template.find("{")]):
        return template == uri
    steps = steps or Steps(STEPS)
    steps.take(4 + len(template) // CHARACTERS)
    ends = {0}  # where the parts so far may end in the URI
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
    """A plain expression stands for at least one character and no slash; the others for anything."""
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
