"""Who may come in by a port, as the file says it: tokens, their names and their toolboxes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_workbench.config.expand import Path, expand, remedy
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.schema import HTTP, NAME, TOKEN
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.spec import HttpWish, NamedToken

NAME_RULE = "a token's name is made of letters, digits, hyphens and underscores"
_SHAPE = 'write {"token": "${NAME}", "toolboxes": ["…"]}'


class TokenReader:
    """Reads `http` of one file. Its strings stay as written; no finding repeats one."""

    def __init__(self, findings: Findings, environ: Mapping[str, str], boxes: list[str]) -> None:
        self.findings = findings
        self.environ = environ
        self.boxes = boxes
        self.texts: dict[str, str] = {}  # of tokens so far, each with its name

    def http(self, value: Object) -> HttpWish:
        right = self.findings.members(value, HTTP, ("http",))
        token: str = right.get("token", "")
        if token:
            self.doubt(token, ("http", "token"), "http.token")
        named = [
            found
            for name, item in right.get("tokens", {}).items()
            if (found := self.named(name, item, ("http", "tokens", name))) is not None
        ]
        return HttpWish(
            token,
            tuple(right.get("allowedHosts", ())),
            tuple(right.get("allowedOrigins", ())),
            tuple(named),
        )

    def named(self, name: str, value: Any, path: Path) -> NamedToken | None:
        if not re.fullmatch(NAME, name):
            self.findings.error(path, "WB-CONF-013", NAME_RULE, "give it another name")
        if not self.findings.is_object(value, path, _SHAPE):
            return None
        right = self.findings.members(value, TOKEN, path)
        if "token" not in value:
            fix = 'add "token": "${NAME}", with the variable that holds it'
            self.findings.error(path, "WB-CONF-040", "there is no 'token' in it", fix)
        if "token" not in right or ("toolboxes" in value and "toolboxes" not in right):
            return None  # a list that can't be read must not become no list
        self.doubt(right["token"], (*path, "token"), name)
        if "toolboxes" not in right:
            return NamedToken(name, right["token"])
        self.check_boxes(right["toolboxes"], (*path, "toolboxes"))
        return NamedToken(name, right["token"], tuple(right["toolboxes"]))

    def check_boxes(self, boxes: list[str], path: Path) -> None:
        for index, box in enumerate(boxes):
            if box not in self.boxes:
                fix = did_you_mean(box, self.boxes) or "name one of 'toolboxes'"
                told = "there is no toolbox of this name"
                self.findings.error((*path, index), "WB-CONF-041", told, fix)
        if not boxes:
            fix = "name one; without the key it opens all of them"
            self.findings.warning(path, "WB-CONF-017", "this token opens no toolbox", fix)

    def doubt(self, text: str, path: Path, name: str) -> None:
        other = self.texts.setdefault(text, name)
        if other != name:
            told = f"the same token as that of '{other}'"
            fix = "give each its own: they could not be told apart"
            self.findings.error(path, "WB-CONF-042", told, fix)
        for variable in expand(text, self.environ).missing:
            told = f"variable {variable} is not set and has no default; `serve --http` needs it"
            inside = f"${{{variable}"
            self.findings.add(
                Finding(path, "WB-CONF-021", told, remedy(variable), "warning", inside)
            )
        known = expand(text, {})
        if known.text and not known.missing:
            fix = "write ${NAME}, and set the variable where this program is started"
            told = "the token stands in the file itself, for all who can read that"
            self.findings.warning(path, "WB-CONF-043", told, fix)
