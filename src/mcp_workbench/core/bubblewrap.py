"""Sandboxes as arguments of bubblewrap: which namespaces, which mounts, in which order.

Everything here is decided from the values that are given; `upstream.sandbox` looks at the machine.

Of the sandbox `files`, a process sees the programs and libraries of the system, what its lists grant, and
folders of its own for `/tmp`, `/run` and its home. Where paths lie inside of each other, the deepest one decides.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mcp_workbench.core.spec import ResourceLimits, Sandbox

Arguments = tuple[str, ...]

# Programs, libraries and what these read. There are no secrets here that every user may not read anyway.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = tuple(
    f"/etc/{name}"
    for name in """
    alternatives ca-certificates crypto-policies fonts group host.conf hosts ld.so.cache ld.so.conf
    ld.so.conf.d localtime mime.types nsswitch.conf os-release passwd pki/ca-trust pki/tls/cert.pem
    pki/tls/certs protocols resolv.conf services ssl/cert.pem ssl/certs ssl/openssl.cnf terminfo timezone
    """.split()  # noqa: SIM905 - names, read as a list of words
)
# Where `/etc/resolv.conf` may lead to.
_RESOLVERS = ("/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf")
# Of root's capabilities, those that reach files and users; none that reaches other processes or the kernel.
_KEPT_OF_ROOT = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
    "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SYS_CHROOT",
)  # fmt: skip
_OWN_PROCESSES = ("--die-with-parent", "--unshare-pid")
_APART = ("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")

# Sets the limits of `limited` and becomes the program. Shells name the limit on processes differently.
_LIMITS = """\
[ "$1" = 0 ] || ulimit -d "$1" || exit 126
[ "$2" = 0 ] || ulimit -n "$2" || exit 126
if [ "$3" != 0 ]; then
  if (ulimit -u "$3") 2>/dev/null; then ulimit -u "$3"; else ulimit -p "$3" || exit 126; fi
fi
shift 3
exec "$@"
"""


class Surroundings(msgspec.Struct, frozen=True):
    """What the machine adds to a sandbox: absolute paths, and who we are."""

    cwd: str
    home: str = ""
    is_root: bool = False
    hidden_folders: Arguments = ()
    hidden_files: Arguments = ()
    read_only: Arguments = ()  # inside of what may be written


def box_arguments(sandbox: Sandbox, around: Surroundings) -> Arguments:
    """Returns the options of bubblewrap for a sandbox whose paths are absolute."""
    if sandbox.kind != "files":
        rights = _rights(_KEPT_OF_ROOT) if around.is_root else ()
        everything = ("--dev-bind", "/", "/", "--proc", "/proc")
        return (*_OWN_PROCESSES, *rights, *everything)
    network = () if sandbox.network else ("--unshare-net",)
    rights = _rights(()) if around.is_root else ()
    return (*_OWN_PROCESSES, *_APART, *network, *rights, *_mounts(sandbox, around))


def probe_arguments(sandbox: Sandbox, *, is_root: bool) -> Arguments:
    """Returns options with the namespaces of a sandbox and no mounts that can fail."""
    options = box_arguments(
        Sandbox(sandbox.kind, network=sandbox.network), Surroundings("/", is_root=is_root)
    )
    if sandbox.kind != "files":
        return options
    namespaces = options[: options.index(_first_mount(options))]
    return (*namespaces, "--dev-bind", "/", "/", "--proc", "/proc")


def _first_mount(options: Arguments) -> str:
    return next(option for option in options if "bind" in option or option == "--tmpfs")


def _rights(kept: Arguments) -> Iterator[str]:
    """Yields options for root, who would keep all capabilities; other users have none."""
    yield from ("--cap-drop", "ALL")
    for capability in kept:
        yield from ("--cap-add", capability)


# Mounts


def _mounts(sandbox: Sandbox, around: Surroundings) -> Iterator[str]:
    granted = (*sandbox.read, *sandbox.write)
    mounts = dict(_base_mounts(sandbox, around))
    # The stricter list wins where one path is in several.
    mounts |= {path: ("--bind", path, path) for path in sandbox.write}
    mounts |= {path: ("--ro-bind", path, path) for path in (*sandbox.read, *around.read_only)}
    mounts |= {path: ("--dev-bind", path, path) for path in granted if is_inside(path, "/dev")}
    mounts |= {path: ("--tmpfs", path) for path in around.hidden_folders}
    mounts |= {path: ("--ro-bind", "/dev/null", path) for path in around.hidden_files}
    mounts |= {path: ("--bind-try", path, path) for path in _between(mounts)}
    for path in sorted(mounts, key=depth):
        yield from mounts[path]
    yield from ("--proc", "/proc")
    if not any(is_inside(around.cwd, path) for path in (*granted, *SYSTEM)):
        yield from ("--dir", around.cwd)  # empty
    if "/" not in granted:
        yield from ("--remount-ro", "/")
    yield from ("--chdir", around.cwd)


def _between(mounts: Mapping[str, Arguments]) -> Iterator[str]:
    """Yields the folders between a mount and the writable one around it.

    A mount can't be renamed, but its parents can, unless they are mounts as well. If they were moved, the
    next start would not find what is to be hidden or kept from changes, or find something else there.
    """
    for path in mounts:
        parents = list(_parents(path))
        for number, parent in enumerate(parents):
            if parent in mounts:
                yield from parents[:number] if mounts[parent][0] == "--bind" else ()
                break


def _parents(path: str) -> Iterator[str]:
    """Yields the folders around a path, the nearest first."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _base_mounts(sandbox: Sandbox, around: Surroundings) -> Iterator[tuple[str, Arguments]]:
    granted = (*sandbox.read, *sandbox.write)
    if "/" not in granted:
        yield from ((path, ("--ro-bind-try", path, path)) for path in (*SYSTEM, *_SETTINGS))
    if sandbox.network:
        yield from ((path, ("--ro-bind-try", path, path)) for path in _RESOLVERS)
    yield "/dev", ("--dev", "/dev")
    yield from ((path, ("--tmpfs", path)) for path in ("/run", "/tmp"))  # noqa: S108 - the sandbox's own
    home = around.home
    if home.strip("/") and not any(is_inside(home, path) for path in granted):
        yield home, ("--tmpfs", home)


def depth(path: str) -> int:
    return path.rstrip("/").count("/")


def is_visible(path: str, sandbox: Sandbox) -> bool:
    """Is there something of the machine at this path in the sandbox?"""
    if sandbox.kind != "files":
        return True
    granted = (*sandbox.read, *sandbox.write)
    nearest = max((p for p in granted if is_inside(path, p)), key=depth, default="")
    if nearest == "/":
        return not any(is_inside(path, own) for own in ("/run", "/tmp", "/dev", "/proc"))  # noqa: S108
    return bool(nearest) or any(is_inside(path, p) for p in SYSTEM)


def is_inside(path: str, folder: str) -> bool:
    """Is it this folder, or in it?"""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def seen_at(path: str, grants: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields where a path is visible through these grants: pairs of a path and what it really is."""
    for granted, real in grants:
        if is_inside(path, real):
            yield granted.rstrip("/") + path[len(real.rstrip("/")) :]


# Limits


def limited(argv: Arguments, limits: ResourceLimits) -> Arguments:
    """Returns the command line that sets these limits and then becomes the program."""
    if limits == ResourceLimits():
        return argv
    kilobytes = -(-limits.memory_bytes // 1024)
    numbers = (str(kilobytes), str(limits.open_files), str(limits.processes))
    return ("/bin/sh", "-c", _LIMITS, "mcp-workbench limits", *numbers, *argv)


def describe(sandbox: Sandbox) -> str:
    """`files, 2 to read, 1 to write, no network`."""
    if sandbox.kind != "files":
        return sandbox.kind
    network = "network" if sandbox.network else "no network"
    return f"files, {len(sandbox.read)} to read, {len(sandbox.write)} to write, {network}"
