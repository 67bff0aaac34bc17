# shim: mcp_workbench.core.jsonc -> mcp_workbench.config.jsonc
from mcp_workbench.config.jsonc import BOM as BOM
from mcp_workbench.config.jsonc import Child as Child
from mcp_workbench.config.jsonc import Duplicate as Duplicate
from mcp_workbench.config.jsonc import Lines as Lines
from mcp_workbench.config.jsonc import Node as Node
from mcp_workbench.config.jsonc import Path as Path
from mcp_workbench.config.jsonc import Place as Place
from mcp_workbench.config.jsonc import SyntaxProblem as SyntaxProblem
from mcp_workbench.config.jsonc import TooDeep as TooDeep
from mcp_workbench.config.jsonc import duplicates as duplicates
from mcp_workbench.config.jsonc import find as find
from mcp_workbench.config.jsonc import locate as locate
from mcp_workbench.config.jsonc import parse as parse
from mcp_workbench.config.jsonc import past_gap as past_gap
from mcp_workbench.config.jsonc import place as place
from mcp_workbench.config.jsonc import place_of_byte as place_of_byte
from mcp_workbench.config.jsonc import read as read
