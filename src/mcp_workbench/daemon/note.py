# shim: mcp_workbench.daemon.note -> mcp_workbench.daemon.crash_journal
from mcp_workbench.daemon.crash_journal import create_journal as new_note
from mcp_workbench.daemon.crash_journal import open_journal as open_note
from mcp_workbench.daemon.crash_journal import read_journal as read_note
