# shim: mcp_workbench.search.scoring -> mcp_workbench.search.index
from mcp_workbench.search.index import FEW as FEW
from mcp_workbench.search.index import SLACK as SLACK
from mcp_workbench.search.index import WORTH as WORTH
from mcp_workbench.search.index import Scores as Scores
from mcp_workbench.search.index import Term as Term
from mcp_workbench.search.index import Weights as Weights
from mcp_workbench.search.index import best_scores as best_scores
from mcp_workbench.search.index import scores_of as scores_of
