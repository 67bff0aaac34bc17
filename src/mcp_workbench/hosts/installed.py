# shim: mcp_workbench.hosts.installed -> mcp_workbench.hosts.own_entry
"""Moved."""

from mcp_workbench.hosts.own_entry import EntryProblem as EntryProblem
from mcp_workbench.hosts.own_entry import Kind as Kind
from mcp_workbench.hosts.own_entry import OwnEntry as OwnEntry
from mcp_workbench.hosts.own_entry import entry_problems as entry_problems
from mcp_workbench.hosts.own_entry import own_entries_in as own_entries_in
from mcp_workbench.hosts.own_entry import place_of as place_of
from mcp_workbench.hosts.own_entry import same_file as same_file
