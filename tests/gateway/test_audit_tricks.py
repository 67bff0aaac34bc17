"""Tricks on the audit: arguments that two readers read differently, and a name that leads elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mcp_workbench.config.audit_settings import LogUnusable
from mcp_workbench.config.load import load_config
from mcp_workbench.gateway.audit_arguments import ArgumentTexts
from mcp_workbench.gateway.audit_file import AuditFile
from tests.kit.config import config_file, tool
from tests.kit.root import needs_root

NOBODY = 65534


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"path":"/etc/shadow","path":"notes"}',
        b'{"path":"/etc/shadow","p\\u0061th":"notes"}',
        b'{"deep":[{"path":"/etc/shadow","path":"notes"}]}',
    ],
)
def test_arguments_that_two_readers_read_differently_are_not_shown_as_one_of_them(
    tmp_path: Path, arguments: bytes
) -> None:
    entry = {"command": "true", "auditArguments": True}
    texts = ArgumentTexts(load_config(config_file(tmp_path, {"a": entry})), {})

    line = json.loads(texts.added(b'{"v":1}\n', tool("a", "read"), arguments))

    assert line["arguments"].startswith(f"({len(arguments)} bytes: a name occurs twice")


@needs_root("nobody else can give a link away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text("mine\n")
    link = tmp_path / "calls.jsonl"
    link.symlink_to(profile)
    AuditFile(str(link)).open()  # our own
    os.lchown(link, NOBODY, NOBODY)
    file = AuditFile(str(link))

    with pytest.raises(LogUnusable, match="a link of another user"):
        file.open()
    file.append(b'{"v":1}\n', 0.0)

    assert profile.read_text() == "mine\n"
    assert file.trouble == "it is a link of another user"
