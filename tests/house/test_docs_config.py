"""Every configuration that the documents show can be loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcp_workbench.config.load import load_config

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<excuse><!-- not loaded: [^>]+ -->\n+)?^ *```jsonc?\n(?P<text>.*?)^ *```", re.M | re.S
)


def configurations() -> list[tuple[str, str]]:
    return [
        (f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}", block["text"])
        for file in DOCUMENTS
        for text in [file.read_text("utf-8")]
        for block in BLOCK.finditer(text)
        if re.search(r'"(toolboxes|mcpServers)"', block["text"]) and not block["excuse"]
    ]


CONFIGURATIONS = configurations()


def test_there_are_configurations_in_the_documents() -> None:
    assert len(CONFIGURATIONS) >= 3


@pytest.mark.parametrize("text", [pytest.param(t, id=where) for where, t in CONFIGURATIONS])
def test_a_configuration_in_the_documents_loads_without_a_doubt(text: str, tmp_path: Path) -> None:
    file = tmp_path / "workbench-config.json"
    file.write_text(text, "utf-8")
    file.chmod(0o644)
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "value")

    doubts = load_config(file, variables, careful=True).warnings

    assert [doubt.message for doubt in doubts if doubt.code != "WB-CONF-017"] == []
