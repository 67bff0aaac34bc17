# shim: mcp_workbench.gateway.input_rounds -> mcp_workbench.gateway.interactive
# ruff: noqa
# fmt: off
from mcp_workbench.gateway.interactive import InputRounds as InputRounds, Put as Put, Withdraw as Withdraw, read_questions as read_questions
