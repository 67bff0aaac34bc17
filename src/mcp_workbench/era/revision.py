"""The revisions of the protocol, and which era each belongs to."""

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NEWEST_LEGACY = LEGACY[-1]
MODERN = "2026-07-28"
BATCHES = "2025-03-26"  # the one revision in which a message may be an array

META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CLIENT_INFO_KEY = f"{META}clientInfo"
CAPABILITIES_KEY = f"{META}clientCapabilities"
LOG_LEVEL_KEY = f"{META}logLevel"
SERVER_INFO_KEY = f"{META}serverInfo"
SUBSCRIPTION_KEY = f"{META}subscriptionId"

UNSUPPORTED_VERSION = -32022
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
URL_ELICITATION_NEEDED = -32042

# Errors that speak to the host's machinery, not to the model: they stay errors everywhere.
FOR_THE_HOST = frozenset({MISSING_CAPABILITY, URL_ELICITATION_NEEDED})
# Errors about our own request to a server: a host would take them for its own.
OF_OUR_HOP = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})


def is_modern(revision: str) -> bool:
    return revision == MODERN


def legacy_answer(offered: str) -> str:
    """The revision that answers an `initialize` which offers this one."""
    return offered if offered in LEGACY else NEWEST_LEGACY
