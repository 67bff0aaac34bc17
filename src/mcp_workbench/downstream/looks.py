# shim: mcp_workbench.downstream.looks -> mcp_workbench.upstream.reports
from mcp_workbench.upstream.reports import cached_server as remembered, health as health, not_ready as not_ready, opened_toolbox as opened, process_group as group, report as report, require_queue_room as require_patience, wait_until_decided as decided
