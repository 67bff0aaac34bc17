# shim: mcp_workbench.schema.form -> mcp_workbench.schema.form_fields
# ruff: noqa
# fmt: off
from mcp_workbench.schema.form_fields import FormField as FormField, fits_format as fits_format, form_fields as form_fields
