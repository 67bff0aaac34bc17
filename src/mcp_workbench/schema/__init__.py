"""What a JSON Schema allows: shown as a signature, compared with values, asked for in a form."""
