"""Tokens as a model counts them."""

from __future__ import annotations

from typing import Any

import pytest


def o200k_tokens(text: str) -> int:
    """Counted with the real o200k vocabulary; skips the test where this Python has no build of it."""
    module: Any = pytest.importorskip("rs_bpe.bpe", reason="rs-bpe has no build for this Python")
    return module.openai.o200k_base().count(text)
