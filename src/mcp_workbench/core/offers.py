# shim: mcp_workbench.core.offers -> mcp_workbench.core.primitives
from mcp_workbench.core.primitives import KEYS as KEYS
from mcp_workbench.core.primitives import Primitive as Offer
from mcp_workbench.core.primitives import PrimitiveKind as Kind
from mcp_workbench.core.primitives import PrimitiveRef as Owned
from mcp_workbench.core.primitives import SCHEME as SCHEME
from mcp_workbench.core.primitives import ServerPrimitives as Shelf
from mcp_workbench.core.primitives import addressed as addressed
from mcp_workbench.core.primitives import matches as matches
from mcp_workbench.core.primitives import owner_by_template as owner_by_template
from mcp_workbench.core.primitives import owners_of_flat_name as owners_of_flat_name
from mcp_workbench.core.primitives import read_addressed as read_addressed
from mcp_workbench.core.primitives import read_primitives as read_offers
from mcp_workbench.core.primitives import shown_uris as shown_uris
