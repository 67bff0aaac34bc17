"""Reads the entry of one server."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import (
    VARIABLE_FORMS,
    Path,
    Target,
    dotted,
    doubtful,
    expand,
    references,
    remedy,
    strings_of,
    unset,
)
from mcp_workbench.config.findings import Finding, Findings, Object, advice, foreign_keys
from mcp_workbench.config.kinds import kind_of
from mcp_workbench.config.schema import (
    AUTH,
    SERVER,
    TRANSPORTS,
)
from mcp_workbench.core.spec import (
    CALL_TIMEOUT,
    CONNECT_TIMEOUT,
    IDLE_TIMEOUT,
    AuthSettings,
    HttpEndpoint,
    LockLevel,
    Pairs,
    ResourceLimits,
    Sandbox,
    SecretSource,
    SecretSources,
    ServerAddress,
    ServerSpec,
    StdioCommand,
    tool_filter,
)

# Keys of a server entry whose variables are expanded on load, because the catalogue depends on them.
EXPANDED_ON_LOAD = ("type", "transport", "era", "toolFilters")
NO_TARGET = "add 'command' for a program of this machine, or 'url' for a remote server"
APPROVE_EVERYTHING = ("*", "resource:*", "prompt:*")
# Keys without effect in an entry that has this key.
INEFFECTIVE = {
    "command": ("headers", "auth"),
    "url": ("args", "env", "inheritEnv", "cwd", "sandbox", "sandboxEnabled", "resourceLimits"),
}


class SandboxDefault(msgspec.Struct, frozen=True):
    """The `sandbox` of a toolbox or of the file, for the entries that have none."""

    sandbox: Sandbox = Sandbox()
    is_foreign: bool = False  # VS Code's form: only for entries with `sandboxEnabled`


class EntryReader:
    """Reads the server entries of one file."""

    def __init__(
        self, findings: Findings, environ: Mapping[str, str], folder: str, file: str = ""
    ) -> None:
        self.findings = findings
        self.environ = environ
        self.folder = folder
        self.file = file
        self.inherit: bool | list[str] = False  # for entries without `inheritEnv`
        self.approve: bool | str | list[str] = False  # for entries without `approve`
        self.lock: LockLevel = "record"  # for entries without `lock`
        self.sandbox = SandboxDefault()  # for entries without `sandbox`
        self.secrets: dict[str, SecretSource] = {}
        self.audit_arguments = False  # for entries without `auditArguments`
        self.has_cluster = False

    def spec(self, address: ServerAddress, entry: Object, path: Path) -> ServerSpec | None:
        entry, missing = self.expanded_on_load(entry, path)
        valid = self.findings.members(entry, SERVER, path)
        if valid.get("disabled"):
            return None
        self.findings.add(*missing)
        target = self.target(entry, valid, path)
        if target is None:
            return None
        self.check_variables(target, path)
        self.check_folder(valid, path)
        self.check_principal(valid, target, path)
        is_single = valid.get("placement") == "one"
        if is_single:
            self.check_placement(valid, target, path)
        return ServerSpec(
            address,
            target,
            tool_filter(() if missing else tuple(valid.get("toolFilters", ("*",)))),
            valid.get("era", "auto"),
            float(valid.get("connectTimeout", CONNECT_TIMEOUT)),
            float(valid.get("timeout", CALL_TIMEOUT)),
            dotted(path),
            "; ".join(unset(finding.inside[2:], dotted(finding.path)) for finding in missing),
            "shared" if is_single else valid.get("scope", "auto"),
            float(valid.get("idleTimeout", IDLE_TIMEOUT)),
            None if "resultBudget" not in valid else int(valid["resultBudget"]),
            valid.get("validate", False),
            self.sources(target) if self.secrets else (),
            valid.get("auditArguments", self.audit_arguments),
            approved(valid.get("approve", self.approve)),
            valid.get("lock", self.lock),
            placement="one" if is_single else "every",
        )

    def sources(self, target: Target) -> SecretSources:
        """Returns where the secrets of this server come from."""
        names = dict.fromkeys(n for _, text in strings_of(target) for n in references(text))
        return tuple((name, self.secrets[name]) for name in names if name in self.secrets)

    def expanded_on_load(self, entry: Object, path: Path) -> tuple[Object, list[Finding]]:
        """Returns the entry with the keys of `EXPANDED_ON_LOAD` expanded, and its unset variables.

        A key that refers to an unset variable is left out.
        """
        entry, missing = dict(entry), list[Finding]()
        for key in EXPANDED_ON_LOAD:
            here, value = (*path, key), entry.get(key)
            if isinstance(value, str):
                entry[key] = self.expanded(value, here, missing)
            elif isinstance(value, list):
                items = enumerate(cast("list[Any]", value))
                entry[key] = [self.expanded(item, (*here, index), missing) for index, item in items]
        for finding in missing:
            entry.pop(str(finding.path[len(path)]), None)
        return entry, missing

    def expanded(self, value: Any, path: Path, missing: list[Finding]) -> Any:
        """Returns the value with its variables expanded, and adds the unset ones to `missing`."""
        if not isinstance(value, str):
            return value
        expanded = expand(value, self.environ)
        missing += [_unset(name, path) for name in expanded.missing]
        return expanded.text

    def target(self, entry: Object, valid: Object, path: Path) -> Target | None:
        """Returns how the server is reached; None if the entry has no usable target."""
        kinds = [key for key in ("command", "url") if key in entry]
        if not kinds:
            foreign = foreign_keys(entry, "command", "url")
            fix = advice(foreign[0], list(SERVER)) if foreign else NO_TARGET
            self.findings.error(path, "WB-CONF-018", "neither 'command' nor 'url'", fix)
            return None
        if len(kinds) == 2:
            fix = "keep 'command' for a program of this machine, 'url' for a remote server"
            self.findings.error(path, "WB-CONF-019", "both 'command' and 'url'", fix)
            return None
        [kind] = kinds
        for key in INEFFECTIVE[kind]:
            if key in valid:
                message = f"has no effect beside '{kind}'"
                self.findings.warning((*path, key), "WB-CONF-026", message, "remove it")
        transport = self.transport(kind, valid, path)
        if kind not in valid:
            return None
        if kind == "url":
            headers = self.pairs(valid.get("headers", {}), (*path, "headers"))
            auth = self.auth(valid.get("auth"), (*path, "auth"))
            return HttpEndpoint(
                valid["url"], headers, "sse" if transport == "sse" else "http", auth
            )
        env = self.pairs(valid.get("env", {}), (*path, "env"))
        args = tuple(valid.get("args", ()))
        inherit = inherited(valid.get("inheritEnv", self.inherit))
        cwd, box = valid.get("cwd", ""), self.confined(valid, path)
        return StdioCommand(valid["command"], args, env, cwd, self.folder, inherit, *box)

    def confined(self, valid: Object, path: Path) -> tuple[Sandbox, ResourceLimits]:
        """Returns the sandbox of a command, and its limits."""
        own = {"sandbox", "sandboxEnabled", "resourceLimits"} & set(valid)
        if self.sandbox.sandbox.kind == "off" and not own:
            return Sandbox(), ResourceLimits()
        # Loaded only for files with one of these keys.
        from mcp_workbench.config.sandbox_settings import read_resources, read_sandbox

        sandbox = read_sandbox(self.findings, valid, self.sandbox, path)
        resources = read_resources(self.findings, valid, path)
        if sandbox.write:
            sandbox = msgspec.structs.replace(sandbox, config=self.file)
        return sandbox, resources

    def auth(self, value: Object | None, path: Path) -> AuthSettings:
        """Returns how to sign in to a server at a URL."""
        if value is None:
            return AuthSettings()
        valid = self.findings.members(value, AUTH, path)
        machine = valid.get("grant") == "client_credentials"
        if machine and not ("clientId" in valid and ({"clientSecret", "privateKey"} & set(valid))):
            message = "client_credentials needs 'clientId', and 'clientSecret' or 'privateKey'"
            fix = 'add "clientId": "…" and "clientSecret": "${NAME}"'
            self.findings.error(path, "WB-CONF-010", message, fix)
        if "privateKey" in valid:
            self.private_key(valid, path)
        return AuthSettings(
            valid.get("clientId", ""),
            valid.get("clientSecret", ""),
            valid.get("clientMetadataUrl", ""),
            valid.get("grant", "authorization_code"),
            tuple(valid.get("scopes", ())),
            valid.get("issuer", ""),
            tuple(valid.get("allowedOrigins", ())),
            int(valid.get("redirectPort", 0)),
            valid.get("account", ""),
            valid.get("privateKey", ""),
            self.folder if "privateKey" in valid else "",
        )

    def private_key(self, valid: Object, path: Path) -> None:
        if not {"clientId", "clientMetadataUrl"} & set(valid):
            fix = 'add "clientId": "…", as the authorization server knows the client'
            self.findings.error(path, "WB-CONF-010", "'privateKey' needs 'clientId'", fix)
        if "clientSecret" in valid:
            message = "has no effect beside 'privateKey'"
            self.findings.warning((*path, "clientSecret"), "WB-CONF-026", message, "remove it")

    def transport(self, kind: str, valid: Object, path: Path) -> str:
        given = {key: TRANSPORTS[valid[key]] for key in ("type", "transport") if key in valid}
        if len(set(given.values())) == 2:
            message = "'type' and 'transport' contradict each other"
            self.findings.error((*path, "transport"), "WB-CONF-020", message, "keep one of them")
        for key, transport in given.items():
            if (transport == "stdio") != (kind == "command"):
                message = f"\"{valid[key]}\" does not go with '{kind}'"
                fix = f"remove '{key}': it follows from '{kind}'"
                self.findings.error((*path, key), "WB-CONF-020", message, fix)
        return next(iter(given.values()), "")

    def pairs(self, value: Object, path: Path) -> Pairs:
        pairs: list[tuple[str, str]] = []
        for name, item in value.items():
            text = str(item).lower() if isinstance(item, bool) else str(item)
            if not isinstance(item, str):
                message = f"{kind_of(item)} where a string belongs; taken as its text"
                self.findings.warning(
                    (*path, name), "WB-CONF-023", message, "put it in double quotes"
                )
            pairs.append((name, text))
        return tuple(pairs)

    def check_folder(self, valid: Object, path: Path) -> None:
        beside = next((key for key in ("url", "cwd") if key in valid), "")
        if valid.get("scope") == "folder" and beside:
            message = f"\"folder\" has no effect beside '{beside}'"
            self.findings.warning((*path, "scope"), "WB-CONF-026", message, "remove it")

    def check_principal(self, valid: Object, target: Target, path: Path) -> None:
        """Nothing that all people would share may stand beside `"scope": "principal"`."""
        if valid.get("scope") != "principal":
            return
        here = (*path, "scope")
        if not isinstance(target, HttpEndpoint):
            message = "\"principal\" has no effect beside 'command'"
            self.findings.warning(here, "WB-CONF-026", message, "remove it")
            return
        if any(name.lower() == "authorization" for name, _ in target.headers):
            message = "\"principal\" contradicts 'Authorization' in 'headers', which all people would share"
            self.findings.error(here, "WB-CONF-010", message, "keep one of the two")
        if target.auth.grant == "client_credentials":
            message = '"principal" contradicts "client_credentials", with which no person signs in'
            self.findings.error(here, "WB-CONF-010", message, "keep one of the two")

    def check_placement(self, valid: Object, target: Target, path: Path) -> None:
        """One process for all replicas: there must be replicas, a process, and one of it."""
        here, fix = (*path, "placement"), "remove it"
        if isinstance(target, HttpEndpoint):
            message = (
                "\"one\" is for servers with a 'command'; one at a URL is the same for all replicas"
            )
        elif not self.has_cluster:
            message = "\"one\" needs a 'cluster': without it there is one process anyway"
            fix = "remove it, or add 'cluster' at the top"
        elif valid.get("scope", "shared") != "shared":
            message = f'"one" contradicts "scope": "{valid["scope"]}", which starts several'
            fix = "keep one of the two"
        else:
            return
        self.findings.error(here, "WB-CONF-069", message, fix)

    def check_variables(self, target: Target, path: Path) -> None:
        """Warns of unset variables, and of a `${` that begins none."""
        for inner, text in strings_of(target):
            here = (*path, *inner)
            missing = [n for n in expand(text, self.environ).missing if n not in self.secrets]
            self.findings.add(*(_unset(name, here) for name in missing))
            if self.secrets and inner[0] == "args":
                self.check_argument(text, here)
            if doubtful(text):
                message = "a '${' in it is no variable and stays as it is"
                self.findings.warning(here, "WB-CONF-027", message, VARIABLE_FORMS)

    def check_argument(self, text: str, path: Path) -> None:
        for name in references(text):
            if name in self.secrets:
                message = f"every user of this machine can read arguments, and so secret {name}"
                fix = "give it to the server in 'env', if it takes it from there"
                self.findings.warning(path, "WB-CONF-047", message, fix)


def inherited(value: bool | list[str]) -> tuple[str, ...]:  # noqa: FBT001 - a value of the file
    """Returns the names and globs of an `inheritEnv`."""
    if isinstance(value, bool):
        return ("*",) if value else ()
    return tuple(value)


def approved(value: bool | str | list[str]) -> tuple[str, ...]:  # noqa: FBT001 - a value of the file
    """Returns the entries of an `approve`: see `core.approve_rules`."""
    if isinstance(value, bool):
        return APPROVE_EVERYTHING if value else ()
    return (value,) if isinstance(value, str) else tuple(value)


def _unset(variable: str, path: Path) -> Finding:
    message = f"variable {variable} is not set and has no default; the server is unavailable"
    return Finding(path, "WB-CONF-021", message, remedy(variable), "warning", f"${{{variable}")
