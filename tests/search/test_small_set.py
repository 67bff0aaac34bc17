"""A small set of tools and questions of our own: how often the right tool is among the first."""

from __future__ import annotations

from mcp_workbench.core.spec import Snapshot, ToolboxSpec
from mcp_workbench.server.own_tools import search_text
from tests.search.test_index import known, searched, tool

SERVERS = [
    known(
        "dev/filesystem",
        tool("read_text_file", "Read the complete contents of a file as text.", path={}),
        tool("write_file", "Create a new file or overwrite an existing one.", path={}, content={}),
        tool("list_directory", "List files and folders in a directory.", path={}),
        tool("move_file", "Move or rename files and directories.", source={}, destination={}),
        tool("search_files", "Find files whose names match a pattern.", pattern={}),
        text="Works on the files of this machine.",
    ),
    known(
        "dev/git",
        tool("git_log", "Shows the commit history.", repo_path={}, max_count={}),
        tool("git_commit", "Records changes to the repository.", message={}),
        tool("git_diff", "Shows differences between branches or commits.", target={}),
        tool("git_checkout", "Switches branches.", branch_name={}),
    ),
    known(
        "web/browser",
        tool("fetch", "Fetches a URL and extracts its text as markdown.", url={}),
        tool("screenshot", "Takes a picture of the current page.", fullPage={}),
        tool("click", "Clicks an element of the page.", selector={}),
        tool("search", "Searches the web.", query={}),
    ),
    known(
        "office/calendar",
        tool("create_event", "Adds an appointment to the calendar.", start={}, end={}, title={}),
        tool("list_events", "Lists the appointments of a day or week.", timeMin={}),
        tool("get_current_time", "Tells the time in a time zone.", timezone={}),
    ),
    known(
        "office/mail",
        tool("send_email", "Sends a message.", to={}, subject={}, body={}),
        tool("search_messages", "Finds messages in the mailbox.", query={}),
        tool("reply", "Answers a message.", message_id={}),
    ),
]
QUESTIONS = {
    "open a file and show me what it says": "dev/filesystem/read_text_file",
    "rename a folder": "dev/filesystem/move_file",
    "save text into a new file": "dev/filesystem/write_file",
    "which files match *.py": "dev/filesystem/search_files",
    "history of commits": "dev/git/git_log",
    "commit my changes with a message": "dev/git/git_commit",
    "what is different between two branches": "dev/git/git_diff",
    "switch to another branch": "dev/git/git_checkout",
    "download a web page as markdown": "web/browser/fetch",
    "take a screenshot of the page": "web/browser/screenshot",
    "search the web for news": "web/browser/search",
    "add an appointment tomorrow": "office/calendar/create_event",
    "what time is it in the time zone of Tokyo": "office/calendar/get_current_time",
    "write an email to Ada": "office/mail/send_email",
    "find messages about the invoice": "office/mail/search_messages",
    "answer this message": "office/mail/reply",
}


def place(question: str) -> int:
    """Where the right tool stands, from 1; 99 where it is not shown."""
    found = [str(one.tool) for one in searched(question, *SERVERS).tools]
    return found.index(QUESTIONS[question]) + 1 if QUESTIONS[question] in found else 99


def test_the_right_tool_is_nearly_always_among_the_first_five() -> None:
    places = {question: place(question) for question in QUESTIONS}

    print(places)
    assert sum(at == 1 for at in places.values()) >= 11
    assert [question for question, at in places.items() if at > 5] == []


def test_the_same_question_has_the_same_answer_to_the_byte() -> None:
    snapshot = Snapshot({"dev": ToolboxSpec("dev")}, origin="a test")
    for question in QUESTIONS:
        forwards = search_text(searched(question, *SERVERS), "signature", snapshot)
        backwards = search_text(searched(question, *reversed(SERVERS)), "signature", snapshot)
        assert forwards == backwards


def test_a_tool_s_own_name_finds_it_first() -> None:
    for one in SERVERS:
        for definition in one.visible():
            assert searched(definition.name, *SERVERS).tools[0].tool.tool == definition.name
