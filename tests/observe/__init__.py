"""Measuring calls and showing the figures: the meter, /metrics, `top`, OpenTelemetry."""
