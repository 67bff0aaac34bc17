"""Servers for tests. Each is a program of its own; here are their paths."""

from pathlib import Path

FOLDER = Path(__file__).parent
FIXTURE = str(FOLDER / "server.py")  # whatever its flags say, right or wrong
OFFERS = str(FOLDER / "offers_server.py")  # prompts, resources, logging, changes
APPS = str(FOLDER / "apps_server.py")  # an app, and extensions
ASKER = str(FOLDER / "asker.py")  # asks its host
ADDRESSES = str(FOLDER / "addresses.py")  # sends people to a URL first
QUICK = str(FOLDER / "quick.py")  # for long runs: keeps nothing
EVERYTHING = str(FOLDER / "everything/__main__.py")  # all that the conformance suite looks for
SPY = str(FOLDER / "spy.py")  # tries what a sandbox should deny
SDK = FOLDER / "sdk"  # servers of the official SDK
