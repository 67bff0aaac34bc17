"""The codes of `import`, `install`, `uninstall` and `undo`, explained."""

from mcp_workbench.core.explanation import Explanation

HOST_CODES = {
    "WB-HOST-501": Explanation(
        "A host's file can't be read",
        "The file of a host is not the JSON or TOML that it should be, not UTF-8, or has no servers "
        "in it. The place is shown; nothing was changed.",
        "Correct the text there. If the host itself reads the file, tell us which part we refuse.",
    ),
    "WB-HOST-502": Explanation(
        "A file has changed since it was previewed",
        "Between the preview and the writing somebody else wrote the file, often the host itself. "
        "What was agreed to may not fit any more, so the file was left alone.",
        "Run the command again. Quit the host first if it keeps happening.",
    ),
    "WB-HOST-503": Explanation(
        "Nobody can say yes",
        "Files of other programs are changed only after a preview and a yes. Here stdin is no "
        "terminal, or --no-input or --json was given.",
        "Look at the preview, then add --yes. --dry-run shows it and ends well.",
    ),
    "WB-HOST-504": Explanation(
        "The host's own command failed",
        "Some hosts have a command that writes their file. It was run, and it failed, did not end, or "
        "did not write what was expected. The file is as it was.",
        "Run the command of the preview by hand and see what it says, or use --edit.",
    ),
    "WB-HOST-505": Explanation(
        "A file can't be edited without rewriting it",
        "The place where the entry belongs is not an object, or is written inside of another value, "
        "such as an inline table of TOML. We change single members and leave all else alone.",
        "Rewrite that place in the usual form, or make the change by hand.",
    ),
    "WB-HOST-506": Explanation(
        "There is no such host",
        "The name is none of the hosts that this program knows, and no file either.",
        "mcp-workbench install --help; docs/hosts.md lists the names.",
    ),
    "WB-HOST-507": Explanation(
        "There is nothing to undo",
        "No change has this number, or it has been taken back already.",
        "mcp-workbench undo --list shows all changes. MCP_WORKBENCH_HOME says where they are kept.",
    ),
    "WB-HOST-508": Explanation(
        "This host's file is not written",
        "We do not edit this kind of file, or the host has none for this scope.",
        "Write the entry by hand: docs/hosts.md shows it.",
    ),
    "WB-HOST-509": Explanation(
        "There is no configuration to install",
        "An entry in a host names a configuration file, and there is none. The demo toolbox is for "
        "looking around only.",
        "mcp-workbench import makes one from the hosts' own files; or write workbench-config.json.",
    ),
}
