"""Prompts, resources and skills of one connection."""

from __future__ import annotations

import pytest

from mcp_workbench.core.primitive_names import PrimitiveKind
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.upstream.primitives import METHODS, Primitives


@pytest.mark.parametrize("kind", METHODS)
async def test_before_the_connection_is_open_there_is_nothing(kind: PrimitiveKind) -> None:
    primitives = Primitives.alone(ServerAddress("dev", "a"))

    assert not primitives.offers_any(kind)
    assert (await primitives.listed(kind)).offers == {}
    assert primitives.known(kind) is None
    assert primitives.is_silent(kind) == ""
