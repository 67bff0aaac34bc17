"""Validates the value of a configuration file: the snapshot it describes, and all findings.

A finding is an error or a warning with the path of the value at fault. Validation never stops at an
error, so that a user sees all of them at once. `load` adds lines and columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

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
from mcp_workbench.config.kinds import SECONDS, is_number, kind_of
from mcp_workbench.config.schema import (
    AMBIGUOUS,
    AUTH,
    LIMITS,
    NAME,
    SERVER,
    TOOLBOX,
    TOP,
    TRANSPORTS,
    Key,
)
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.spec import (
    CALL_TIMEOUT,
    CALLS,
    CALLS_PER_SERVER,
    CONNECT_TIMEOUT,
    DRAIN,
    IDLE_TIMEOUT,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
    SESSIONS,
    TOOLS_PER_SERVER,
    AuditSettings,
    AuthSettings,
    HttpEndpoint,
    HttpSettings,
    Limits,
    Naming,
    Pairs,
    SecretSource,
    SecretSources,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    tool_filter,
)

Object = dict[str, Any]
Severity = Literal["error", "warning"]

MOST = 20_000  # errors that are listed, and as many warnings; the others are counted
LONGEST_SECONDS = 3600  # a longer time was probably meant in milliseconds
NAME_RULE = (
    "Toolbox and server names should contain only alphanumeric characters, hyphens, and underscores"
)
# Keys of a server entry whose variables are expanded on load, because the catalogue depends on them.
EXPANDED_ON_LOAD = ("type", "transport", "era", "toolFilters")
NO_TARGET = "add 'command' for a program of this machine, or 'url' for a remote server"
# Keys without effect in an entry that has this key.
INEFFECTIVE = {"command": ("headers", "auth"), "url": ("args", "env", "inheritEnv", "cwd")}


def validate(
    value: Any, environ: Mapping[str, str], folder: str = ""
) -> tuple[Snapshot, list[Finding]]:
    """Returns the configuration, as far as it can be understood, and all findings."""
    findings = Findings()
    reader = _FileReader(findings, _EntryReader(findings, environ, folder))
    return reader.file(value), findings.all


class _FileReader:
    """Reads the value of one file, from the top."""

    def __init__(self, findings: Findings, entries: _EntryReader) -> None:
        self.findings = findings
        self.entries = entries
        self.dynamic = False
        self.inherit: bool | list[str] = False  # for toolboxes without `inheritEnv`

    def file(self, value: Any) -> Snapshot:
        if not self.findings.is_object(value, (), 'write {"mcpServers": {…}}'):
            return Snapshot({})
        top = self.findings.members(value, TOP, ())
        self.dynamic = top.get("toolMode") == "dynamic"
        limits = self.findings.members(top.get("limits", {}), LIMITS, ("limits",))
        if "secrets" in top:
            self.entries.secrets = self.secrets(top["secrets"])
        audit = self.audit(top["audit"]) if top.get("audit") else None
        boxes = self.toolboxes(value, top)
        return Snapshot(
            boxes,
            top.get("toolMode", "proxy"),
            _limits(limits),
            http=self.http(top["http"], list(boxes)) if "http" in top else HttpSettings(),
            naming=self.naming(top),
            secrets=tuple(self.entries.secrets.items()),
            audit=audit,
        )

    def audit(self, value: Object | bool | str) -> AuditSettings:  # noqa: FBT001 - a value of the file
        from mcp_workbench.config.audit_settings import (
            read_audit,  # loaded only for files with this key
        )

        settings, self.entries.audit_arguments = read_audit(
            self.findings, value, self.entries.folder
        )
        return settings

    def secrets(self, value: Object) -> dict[str, SecretSource]:
        # Loaded only for files with this key.
        from mcp_workbench.config.secret_settings import SecretsReader

        return SecretsReader(self.findings, self.entries.folder).secrets(value)

    def http(self, value: Object, boxes: list[str]) -> HttpSettings:
        from mcp_workbench.config.http_settings import (
            HttpReader,  # loaded only for files with this key
        )

        secrets = frozenset(self.entries.secrets)
        return HttpReader(self.findings, self.entries.environ, boxes, secrets).http(value)

    def naming(self, top: Object) -> Naming:
        bare = top.get("naming") == "bare"
        if bare and not self.dynamic:
            fix = 'set "toolMode": "dynamic", or leave "naming" out'
            message = "bare names are for dynamic mode only"
            self.findings.error(("naming",), "WB-CONF-028", message, fix)
        return "bare" if bare else "full"

    def check_name(self, name: str, path: Path, what: str) -> None:
        if not re.fullmatch(NAME, name):
            better = re.sub("[^A-Za-z0-9_-]+", "-", name).strip("-") or "main"
            self.findings.error(
                path, "WB-CONF-013", NAME_RULE, f"rename it, for example '{better}'"
            )
        elif re.search(AMBIGUOUS, name):
            better = re.sub("__+", "-", name.rstrip("_")) or "main"
            fault = "contains '__'" if "__" in name else "ends with '_'"
            report = self.findings.error if self.dynamic else self.findings.warning
            message = f"{what} name {fault}" + (
                "" if self.dynamic else ", which dynamic mode refuses"
            )
            report(path, "WB-CONF-014", message, f"rename it, for example '{better}'")

    def toolboxes(self, value: Object, top: Object) -> dict[str, ToolboxSpec]:
        forms = [key for key in ("toolboxes", "mcpServers") if key in value]
        if not forms:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOP)) if foreign else 'write "mcpServers": {…}'
            self.findings.error((), "WB-CONF-016", "neither 'toolboxes' nor 'mcpServers'", fix)
        if len(forms) == 2:
            fix = "move these servers into one of the toolboxes"
            message = "'mcpServers' and 'toolboxes' can't be used together"
            self.findings.error(("mcpServers",), "WB-CONF-015", message, fix)
        boxes: Object = top.get("toolboxes", {})
        self.inherit = self.entries.inherit = top.get("inheritEnv", False)
        specs = {name: self.toolbox(name, boxes[name], ("toolboxes", name)) for name in boxes}
        if "mcpServers" in top:
            servers = self.servers("default", top["mcpServers"], ("mcpServers",))
            specs["default"] = ToolboxSpec("default", servers=servers)
        if "toolboxes" in top and not boxes:
            self.findings.warning(("toolboxes",), "WB-CONF-017", "there is no toolbox", "add one")
        return specs

    def toolbox(self, name: str, value: Any, path: Path) -> ToolboxSpec:
        self.check_name(name, path, "toolbox")
        if not self.findings.is_object(
            value, path, 'write {"description": "…", "mcpServers": {…}}'
        ):
            return ToolboxSpec(name)
        valid = self.findings.members(value, TOOLBOX, path)
        if "mcpServers" not in value:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOOLBOX)) if foreign else 'add "mcpServers": {…}'
            self.findings.error(path, "WB-CONF-016", "the toolbox has no 'mcpServers'", fix)
        self.entries.inherit = valid.get("inheritEnv", self.inherit)
        servers = self.servers(name, valid.get("mcpServers"), (*path, "mcpServers"))
        return ToolboxSpec(
            name,
            valid.get("description", ""),
            servers,
            valid.get("detail", "schema"),
            int(valid.get("resultBudget", 0)),
            valid.get("discover", "eager"),
        )

    def servers(self, toolbox: str, value: Object | None, path: Path) -> dict[str, ServerSpec]:
        if value == {}:
            self.findings.warning(
                path, "WB-CONF-017", f"toolbox '{toolbox}' has no server", "add one"
            )
        specs: dict[str, ServerSpec] = {}
        for name, entry in (value or {}).items():
            here = (*path, name)
            self.check_name(name, here, "server")
            if not self.findings.is_object(entry, here, 'write {"command": "…"} or {"url": "…"}'):
                continue
            spec = self.entries.spec(ServerAddress(toolbox, name), entry, here)
            if spec is not None:
                specs[name] = spec
        return specs


def _limits(valid: Object) -> Limits:
    return Limits(
        int(valid.get("messageBytes", MESSAGE_BYTES)),
        int(valid.get("callsPerServer", CALLS_PER_SERVER)),
        int(valid.get("queueBytes", QUEUE_BYTES)),
        float(valid.get("openWait", OPEN_WAIT)),
        int(valid.get("calls", CALLS)),
        int(valid.get("toolsPerServer", TOOLS_PER_SERVER)),
        float(valid.get("drain", DRAIN)),
        int(valid.get("sessions", SESSIONS)),
    )


# Server entries


class _EntryReader:
    """Reads the server entries of one file."""

    def __init__(self, findings: Findings, environ: Mapping[str, str], folder: str) -> None:
        self.findings = findings
        self.environ = environ
        self.folder = folder
        self.inherit: bool | list[str] = False  # for entries without `inheritEnv`
        self.secrets: dict[str, SecretSource] = {}
        self.audit_arguments = False  # for entries without `auditArguments`

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
        return ServerSpec(
            address,
            target,
            tool_filter(() if missing else tuple(valid.get("toolFilters", ("*",)))),
            valid.get("era", "auto"),
            float(valid.get("connectTimeout", CONNECT_TIMEOUT)),
            float(valid.get("timeout", CALL_TIMEOUT)),
            dotted(path),
            "; ".join(unset(finding.inside[2:], dotted(finding.path)) for finding in missing),
            valid.get("scope", "auto"),
            float(valid.get("idleTimeout", IDLE_TIMEOUT)),
            None if "resultBudget" not in valid else int(valid["resultBudget"]),
            valid.get("validate", False),
            self.sources(target) if self.secrets else (),
            valid.get("auditArguments", self.audit_arguments),
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
        return StdioCommand(valid["command"], args, env, valid.get("cwd", ""), self.folder, inherit)

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


def _unset(variable: str, path: Path) -> Finding:
    message = f"variable {variable} is not set and has no default; the server is unavailable"
    return Finding(path, "WB-CONF-021", message, remedy(variable), "warning", f"${{{variable}")


# Findings


class Finding(msgspec.Struct, frozen=True):
    """An error or a warning, before its line is known."""

    path: Path
    code: str
    message: str
    fix: str
    severity: Severity = "error"
    inside: str = ""  # the part of the value that is at fault
    unlisted: int = 0  # how many further findings it stands for; it has no place itself


class Findings:
    """Collects the findings of one file in order; of very many, only the first ones."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}

    @property
    def all(self) -> list[Finding]:
        """Returns the kept findings, and one that counts the rest of each severity."""
        return [
            *self._kept,
            *map(self._summary, [s for s in self._counts if self._counts[s] > MOST]),
        ]

    def _summary(self, severity: Severity) -> Finding:
        last = next(kept for kept in reversed(self._kept) if kept.severity == severity)
        more = self._counts[severity] - MOST
        kinds = f"{severity}, which is" if more == 1 else f"{severity}s, which are"
        message = f"{more} more {kinds} not listed"
        return Finding((), last.code, message, "correct the others first", severity, unlisted=more)

    def add(self, *findings: Finding) -> None:
        for finding in findings:
            if self._has_room(finding.severity):
                self._kept.append(finding)

    def _has_room(self, severity: Severity) -> bool:
        """Counts one more finding; returns whether it is kept."""
        self._counts[severity] += 1
        return self._counts[severity] <= MOST

    def error(self, path: Path, code: str, message: str, fix: str) -> None:
        self.add(Finding(path, code, message, fix))

    def warning(self, path: Path, code: str, message: str, fix: str) -> None:
        self.add(Finding(path, code, message, fix, "warning"))

    def is_object(self, value: Any, path: Path, fix: str) -> bool:
        if isinstance(value, dict):
            return True
        self.error(path, "WB-CONF-010", f"must be an object, not {kind_of(value)}", fix)
        return False

    def members(self, value: Object, table: dict[str, Key], path: Path) -> Object:
        """Returns the members that fit the table, and reports the others."""
        valid: Object = {}
        for name, item in value.items():
            key = table.get(name)
            if key is None:
                self._unknown((*path, name), name, table)
                continue
            wrong = False
            for inner, message in key.kind.wrong(item):
                wrong = True
                if self._has_room("error"):
                    fix = _fix(name, key, item[inner[0]] if inner else item, inner)
                    here = (*path, name, *inner)
                    self._kept.append(Finding(here, "WB-CONF-010", message, fix))
            if not wrong:
                valid[name] = item
                self.check_seconds(key, item, (*path, name))
        return valid

    def _unknown(self, path: Path, name: str, table: dict[str, Key]) -> None:
        if self._has_room("warning"):
            fix = advice(name, list(table))
            message = "unknown key, it has no effect"
            self._kept.append(Finding(path, "WB-CONF-012", message, fix, "warning"))

    def check_seconds(self, key: Key, value: Any, path: Path) -> None:
        if key.kind is SECONDS and value > LONGEST_SECONDS:
            message = (
                f"{value:g} seconds are {value / 3600:.3g} hours; probably meant as milliseconds"
            )
            fix = f"write {value / 1000:g}: the unit here is a second"
            self.warning(path, "WB-CONF-022", message, fix)


def _fix(name: str, key: Key, value: Any, inner: Path) -> str:
    if name == "command" and isinstance(value, list):
        return "write its first word as 'command' and the others as 'args'"
    if inner and (is_number(value) or isinstance(value, bool)):  # an item of strings
        return "put it in double quotes"
    if key.kind.choices and isinstance(value, str):
        ours = FOREIGN_TRANSPORTS.get(value)
        near = f'write "{ours}"' if ours else did_you_mean(value, list(key.kind.choices))
        return near or "write one of them"
    example = key.default if key.example is None else key.example
    return f"for example {msgspec.json.encode({name: example}).decode()[1:-1]}"


# Keys of other programs, which users paste here


SPELLINGS = {
    "cmd": ("command", "Goose's"),
    "envs": ("env", "Goose's"),
    "uri": ("url", "Goose's"),
    "available_tools": ("toolFilters", "Goose's"),
    "serverUrl": ("url", "Windsurf's"),
    "httpUrl": ("url", "Gemini CLI's"),
    "includeTools": ("toolFilters", "Gemini CLI's"),
    "environment": ("env", "opencode's"),
    "http_headers": ("headers", "Codex's"),
    "enabled_tools": ("toolFilters", "Codex's"),
    "startup_timeout_sec": ("connectTimeout", "Codex's"),
    "tool_timeout_sec": ("timeout", "Codex's"),
    "servers": ("mcpServers", "VS Code's"),
    "mcp_servers": ("mcpServers", "Codex's"),
    "context_servers": ("mcpServers", "Zed's"),
}

_APPROVAL = "remove it; the host decides what needs approval"
_EXCLUDE = "put each name into 'toolFilters' with a '!' before it"
ADVICE = {
    "enabled": "'enabled: false' is 'disabled: true' here",
    "autoApprove": _APPROVAL,
    "alwaysAllow": _APPROVAL,
    "trust": _APPROVAL,
    "excludeTools": _EXCLUDE,
    "disabledTools": _EXCLUDE,
    "disabled_tools": _EXCLUDE,
    "envFile": 'name the variables under \'env\', such as "TOKEN": "${TOKEN}"',
}

FOREIGN_TRANSPORTS = {
    "streamableHttp": "streamable-http",
    "streamable_http": "streamable-http",
    "local": "stdio",
    "remote": "http",
}


def advice(key: str, known: list[str]) -> str:
    """Returns what to do about an unknown key."""
    ours, whose = SPELLINGS.get(key, ("", ""))
    if ours in known:
        return f"'{key}' ({whose} spelling) is '{ours}' here"
    return ADVICE.get(key) or did_you_mean(key, known) or "remove it"


def foreign_keys(entry: dict[str, Any], *ours: str) -> list[str]:
    """Returns the keys of an entry that other programs use for one of these keys."""
    return [key for key in entry if SPELLINGS.get(key, ("", ""))[0] in ours]
