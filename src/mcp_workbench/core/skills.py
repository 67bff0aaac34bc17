"""Skills of servers: their addresses among many servers, and what a search reads of them.

A skill is a folder of files, which hosts read as resources. Its address always names its server, as
`skill://{toolbox}/{server}/{path}/SKILL.md`: if the first server with a path kept it, the skill behind an address
could change with the servers that are connected. The last part of the path is the name of the skill, as before.
"""

import msgspec

from mcp_workbench.core.raw_json import changed, each, read_members
from mcp_workbench.core.spec import ServerAddress

EXTENSION = "io.modelcontextprotocol/skills"
SCHEME = "skill://"
DIRECTORY_READ = "resources/directory/read"
METHODS = frozenset({"skills/list", "skills/get", DIRECTORY_READ})
OTHERS = "mcp-workbench://"  # for files of a skill that have another scheme

encode = msgspec.json.encode


def skill_address(owner: ServerAddress, uri: str) -> str:
    """The address of a file of this server's skills."""
    if uri.startswith(SCHEME):
        return f"{SCHEME}{owner.toolbox}/{owner.server}/{uri.removeprefix(SCHEME)}"
    return f"{OTHERS}{owner.toolbox}/{owner.server}/{uri}"


def read_skill_address(uri: str) -> tuple[ServerAddress, str] | None:
    """The server of such an address, and its own URI; None for any other URI."""
    if not uri.startswith(SCHEME):
        return None
    parts = uri.removeprefix(SCHEME).split("/", 2)
    if len(parts) < 3 or not all(parts):
        return None
    return ServerAddress(parts[0], parts[1]), SCHEME + parts[2]


def addressed_skill(entry: bytes, owner: ServerAddress) -> bytes:
    """An entry with addresses instead of its server's URIs; frontmatter, digests and sizes as received."""
    entry = _addressed(entry, owner)
    files = read_members(entry).get("resources", msgspec.Raw(b"null"))
    if not bytes(files).lstrip().startswith(b"["):  # "dynamic"
        return entry
    return changed(entry, {"resources": addressed_files(files, owner)})


def addressed_files(files: msgspec.Raw | bytes, owner: ServerAddress) -> bytes:
    """A list of files, or of parts of a folder, with addresses instead of the server's URIs."""
    return each(files, lambda file: _addressed(file, owner))


def _addressed(raw: bytes, owner: ServerAddress) -> bytes:
    try:
        uri = msgspec.json.decode(read_members(raw)["uri"], type=str)
    except (KeyError, msgspec.DecodeError):
        return raw
    return changed(raw, {"uri": encode(skill_address(owner, uri))})


class _Frontmatter(msgspec.Struct, frozen=True):
    name: str = ""
    description: str = ""


class _Entry(msgspec.Struct, frozen=True):
    uri: str = ""
    frontmatter: _Frontmatter = _Frontmatter()


class Skill(msgspec.Struct, frozen=True):
    """What a search reads of an entry: text of a server, which nobody has checked."""

    uri: str
    name: str
    description: str


def read_skill(entry: bytes) -> Skill | None:
    """The parts of an entry that are searched; None if it has no usable form."""
    try:
        known = msgspec.json.decode(entry, type=_Entry)
    except msgspec.DecodeError:
        return None
    front = known.frontmatter
    return Skill(known.uri, front.name, front.description) if known.uri and front.name else None
