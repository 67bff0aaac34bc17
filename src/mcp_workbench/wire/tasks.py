# shim: mcp_workbench.wire.tasks -> mcp_workbench.transport.tasks
from mcp_workbench.transport.tasks import Lifetime as Lifetime
from mcp_workbench.transport.tasks import TaskScope as TaskScope
from mcp_workbench.transport.tasks import comes_within as comes_within
from mcp_workbench.transport.tasks import task_scope as task_scope
