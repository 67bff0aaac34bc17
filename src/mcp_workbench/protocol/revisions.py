"""The revisions of the protocol, which era each belongs to, and the names they define."""

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

# Errors that the host itself handles, not the model: they stay errors everywhere.
FOR_THE_HOST = frozenset({MISSING_CAPABILITY, URL_ELICITATION_NEEDED})
# Errors about our own request to a server: a host would think they are about its own.
OF_OUR_HOP = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})


def is_modern(revision: str) -> bool:
    return revision == MODERN


def legacy_answer(offered: str) -> str:
    """Return the revision for the response to an `initialize` that offers this one."""
    return offered if offered in LEGACY else NEWEST_LEGACY
