# shim: mcp_workbench.era.translate -> mcp_workbench.protocol.translation
# shim: mcp_workbench.era.translate -> mcp_workbench.bounded
from mcp_workbench.bounded import Members as Members
from mcp_workbench.bounded import read_members as read_members
from mcp_workbench.protocol.translation import BRACE as BRACE
from mcp_workbench.protocol.translation import PAIRS as PAIRS
from mcp_workbench.protocol.translation import EraPair as Pair
from mcp_workbench.protocol.translation import Stamps as Stamps
from mcp_workbench.protocol.translation import Unanswerable as Unanswerable
from mcp_workbench.protocol.translation import asks_for_input as asks_for_input
from mcp_workbench.protocol.translation import complete as complete
from mcp_workbench.protocol.translation import encode as encode
from mcp_workbench.protocol.translation import meta_for as meta_for
from mcp_workbench.protocol.translation import params_for as params_for
from mcp_workbench.protocol.translation import result_for as result_for
from mcp_workbench.protocol.translation import stamps as stamps
from mcp_workbench.protocol.translation import token_of as token_of
from mcp_workbench.protocol.translation import with_token as with_token
