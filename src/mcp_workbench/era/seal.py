# shim: mcp_workbench.era.seal -> mcp_workbench.protocol.signed_state
from mcp_workbench.protocol.signed_state import LIFETIME as LIFETIME
from mcp_workbench.protocol.signed_state import MOST_SORTED as MOST_SORTED
from mcp_workbench.protocol.signed_state import Kind as Kind
from mcp_workbench.protocol.signed_state import Seal as Seal
from mcp_workbench.protocol.signed_state import SignedState as Sealed
from mcp_workbench.protocol.signed_state import digest_of as digest_of
from mcp_workbench.protocol.signed_state import encode as encode
