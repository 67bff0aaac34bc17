# shim: mcp_workbench.core.signature -> mcp_workbench.schema.signature
from mcp_workbench.schema.signature import AMPLE as AMPLE
from mcp_workbench.schema.signature import MARK as MARK
from mcp_workbench.schema.signature import first_sentence as first_sentence
from mcp_workbench.schema.signature import name_text as name_text
from mcp_workbench.schema.signature import one_line as one_line
from mcp_workbench.schema.signature import short_signature as short_signature
from mcp_workbench.schema.signature import signature_within as signature_within
from mcp_workbench.schema.signature import spelled as spelled
from mcp_workbench.schema.signature import whole_signature as whole_signature
