"""Launch lines that run a container: `docker run …`, `podman run …`.

The process that such a line starts is only a client. The container belongs to its engine, outside of the
client's process group, and goes on if the client is killed. So the container gets a label, by which it
can be found and removed.
"""

import re
from collections.abc import Mapping

import msgspec

LABEL = "mcp-workbench.server"  # its value is one of a kind
CLIENTS = frozenset({"docker", "podman", "podman-remote"})
# Options before the command that take a value as the next word. What is not known takes none: if it does,
# its value is not `run`, and the line is not recognized.
_WITH_VALUE = frozenset(
    """
    -H --host -c --context --config -l --log-level --tlscacert --tlscert --tlskey
    --cgroup-manager --conmon --connection --events-backend --hooks-dir --identity --imagestore --module
    --network-cmd-path --network-config-dir --out --root --runroot --runtime --runtime-flag --ssh
    --storage-driver --storage-opt --tmpdir --url --volumepath
    """.split()  # noqa: SIM905 - names, read as a list of words
)
# Variables that tell a client which engine to talk to, and where its storage is. What else the entry of a
# server sets is for the server, and may be secret.
_OF_CLIENTS = re.compile(
    "PATH|HOME|USER|LOGNAME|TMPDIR|XDG_.+|SSH_AUTH_SOCK|DBUS_SESSION_BUS_ADDRESS"
    "|DOCKER_(HOST|CONTEXT|CONFIG|CERT_PATH|TLS|TLS_VERIFY|API_VERSION)"
    "|CONTAINER_(HOST|CONNECTION|SSHKEY)|CONTAINERS_.*CONF|CONTAINERS_CONF_OVERRIDE|STORAGE_(DRIVER|OPTS)"
)


class LabelledContainer(msgspec.Struct, frozen=True):
    """How to find the container of one launch again, with other commands of its client."""

    label: str  # NAME=VALUE
    client: tuple[str, ...]  # the program and its own options
    env: dict[str, str]
    cwd: str = ""

    def __repr__(self) -> str:
        return f"LabelledContainer({self.label!r})"  # the rest may hold secrets


class ContainerRun(msgspec.Struct, frozen=True):
    """A launch line that runs a container, taken apart."""

    client: tuple[str, ...]  # the program and its own options
    command: tuple[str, ...]  # `run`, or `container run`
    rest: tuple[str, ...]  # options of the command, the image, and what runs in it

    def argv(self, label: str) -> tuple[str, ...]:
        """The same line, for a container with this label besides those that it has."""
        return (*self.client, *self.command, "--label", label, *self.rest)

    def labelled(self, label: str, env: Mapping[str, str], cwd: str) -> LabelledContainer:
        return LabelledContainer(label, self.client, client_environment(env), cwd)

    def __repr__(self) -> str:
        return f"ContainerRun({self.client[0]!r})"  # the rest may hold secrets


def container_run(argv: tuple[str, ...]) -> ContainerRun | None:
    """Read a launch line; None if it does not run a container itself, as `sudo docker run` or a script."""
    if argv[0].rpartition("/")[2] not in CLIENTS:
        return None
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in _WITH_VALUE else 1
    for command in (("run",), ("container", "run")):
        end = at + len(command)
        if argv[at:end] == command:
            return ContainerRun(argv[:at], command, argv[end:])
    return None


def client_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The part of a launch line's environment that its client needs to find the container again."""
    return {name: value for name, value in env.items() if _OF_CLIENTS.fullmatch(name)}
