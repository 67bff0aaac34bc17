# shim: mcp_workbench.schema.shape -> mcp_workbench.schema.signature
# ruff: noqa
# fmt: off
from mcp_workbench.schema.signature import Array as Array, Base as Base, Field as Field, Fields as Fields, Gap as Gap, Inline as Inline, Map as Map, Shape as Shape, Union as Union, Value as Value, arguments_shape as arguments_shape, value_shape as value_shape
