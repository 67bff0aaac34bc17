"""The web page of the workbench: its access rules, its files, its API and its live events.

Nothing outside imports it before a page is served.
"""
