# shim: mcp_workbench.downstream.offers -> mcp_workbench.upstream.primitives
from mcp_workbench.upstream.primitives import ANNOUNCED_TTL as ANNOUNCED_TTL, PrimitiveList as Listed, Primitives as Offers
