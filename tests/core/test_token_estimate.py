"""The estimate of tokens is near what a real vocabulary counts."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from mcp_workbench.core.catalogue import estimate_tokens
from mcp_workbench.demo.builtin import SERVERS
from tests.kit.tokens import o200k_tokens

ROOT = Path(__file__).parents[2]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def definitions() -> list[str]:
    """Our own tools, and those that were recorded of the reference servers."""
    own = [compact(t.definition(name)) for s in SERVERS.values() for name, t in s.items()]
    recorded = (ROOT / "tests/fidelity/corpus/tools.txt").read_text("utf-8").splitlines()
    return own + [line for line in recorded if line.startswith("{")]


def test_definitions_are_estimated_within_a_tenth() -> None:
    texts = definitions()
    real, ours = [o200k_tokens(t) for t in texts], [estimate_tokens(t) for t in texts]

    assert len(texts) >= 8
    assert abs(sum(ours) - sum(real)) < 0.1 * sum(real)
    assert median(abs(o - r) / r for o, r in zip(ours, real, strict=True)) < 0.1


def test_prose_signatures_and_lists_of_names_are_too() -> None:
    signature = (
        'list_directory_with_sizes(path: string, sortBy?: "name"|"size" = "name") - '
        "Get a detailed listing of all files and directories in a specified path.\n"
        "edit_file(path: string, edits: {oldText: string, newText: string}[], dryRun?: bool = false)\n"
    )
    names = "dev/filesystem: read_text_file, list_directory, directory_tree, get_file_info, search_files"
    prose = (ROOT / "docs/processes.md").read_text("utf-8")
    for text, error in ((signature * 5, 0.15), (names, 0.15), (prose, 0.1)):
        assert abs(estimate_tokens(text) - o200k_tokens(text)) < error * o200k_tokens(text), text[
            :60
        ]


def test_other_scripts_and_nothing_at_all() -> None:
    chinese = "使用必应搜索指定的关键词、并返回搜索结果列表、包括标题、链接、摘要"
    assert abs(estimate_tokens(chinese) - o200k_tokens(chinese)) < 0.3 * o200k_tokens(chinese)
    assert estimate_tokens("") == estimate_tokens("   ") == 0
