# shim: mcp_workbench.protocol.revisions -> mcp_workbench.protocol.handshake
# ruff: noqa
from mcp_workbench.protocol.handshake import (
    BATCHES as BATCHES,
    CAPABILITIES_KEY as CAPABILITIES_KEY,
    CLIENT_INFO_KEY as CLIENT_INFO_KEY,
    FOR_THE_HOST as FOR_THE_HOST,
    HEADER_MISMATCH as HEADER_MISMATCH,
    LEGACY as LEGACY,
    LOG_LEVEL_KEY as LOG_LEVEL_KEY,
    META as META,
    MISSING_CAPABILITY as MISSING_CAPABILITY,
    MODERN as MODERN,
    NEWEST_LEGACY as NEWEST_LEGACY,
    OF_OUR_HOP as OF_OUR_HOP,
    SERVER_INFO_KEY as SERVER_INFO_KEY,
    SUBSCRIPTION_KEY as SUBSCRIPTION_KEY,
    UNSUPPORTED_VERSION as UNSUPPORTED_VERSION,
    URL_ELICITATION_NEEDED as URL_ELICITATION_NEEDED,
    VERSION_KEY as VERSION_KEY,
    is_modern as is_modern,
    legacy_answer as legacy_answer,
)
