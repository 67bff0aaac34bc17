# shim: mcp_workbench.downstream.looks -> mcp_workbench.upstream.reports
from mcp_workbench.upstream.reports import decided as decided, group as group, health as health, not_ready as not_ready, opened as opened, remembered as remembered, report as report, require_patience as require_patience
