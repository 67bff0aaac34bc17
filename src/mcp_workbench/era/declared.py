"""What a server declares at its opening: which parts of the protocol it offers."""

import msgspec

from mcp_workbench.era.translate import Members, read_members


class Declared(msgspec.Struct, frozen=True):
    """One server's capabilities, as far as we act on them."""

    tools_changed: bool = False  # it announces changes of its tools
    prompts: bool = False
    prompts_changed: bool = False
    resources: bool = False
    resources_changed: bool = False
    subscribe: bool = False  # it tells subscribers of a resource's changes
    logging: bool = False

    @property
    def announces(self) -> bool:
        return self.tools_changed or self.prompts_changed or self.resources_changed


class _Capability(msgspec.Struct):
    listChanged: bool = False  # noqa: N815 - the wire's word
    subscribe: bool = False


def read_declared(capabilities: msgspec.Raw | bytes) -> Declared:
    """Read capabilities one by one: an odd one is as good as plain, and costs no other."""
    try:
        members = read_members(capabilities)
    except msgspec.DecodeError:
        return Declared()
    tools, prompts, resources = (
        _capability(members, name) for name in ("tools", "prompts", "resources")
    )
    return Declared(
        tools_changed=tools.listChanged,
        prompts="prompts" in members,
        prompts_changed=prompts.listChanged,
        resources="resources" in members,
        resources_changed=resources.listChanged,
        subscribe=resources.subscribe,
        logging="logging" in members,
    )


def _capability(members: Members, name: str) -> _Capability:
    try:
        return msgspec.json.decode(members.get(name, b"{}"), type=_Capability)
    except msgspec.DecodeError:
        return _Capability()
