# shim: mcp_workbench.hosts.merge -> mcp_workbench.hosts.plan
"""Moved."""

from mcp_workbench.hosts.plan import ImportChoice as ImportChoice
from mcp_workbench.hosts.plan import Merged as Merged
from mcp_workbench.hosts.plan import direct as direct
from mcp_workbench.hosts.plan import merge as merge
from mcp_workbench.hosts.plan import own_entries as own_entries
from mcp_workbench.hosts.plan import plain_name as plain_name
from mcp_workbench.hosts.plan import variables_in as variables_in
