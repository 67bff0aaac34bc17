# shim: mcp_workbench.core.shape -> mcp_workbench.schema.shape
from mcp_workbench.schema.shape import arguments_shape as arguments_shape
from mcp_workbench.schema.shape import value_shape as value_shape
