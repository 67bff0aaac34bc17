"""The codes of `import`, `install`, `uninstall`, `undo` and of `doctor` about hosts, explained."""

from mcp_workbench.core.explanation import Explanation

HOST_CODES = {
    "WB-HOST-501": Explanation(
        "A host's file can't be read",
        "The file of a host is not the JSON or TOML that it should be, not UTF-8, too large, a folder or "
        "another thing that is no plain file, or has no servers in it. The place is shown; nothing was changed.",
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
    "WB-HOST-510": Explanation(
        "A host's entry starts nothing",
        "The command of our entry in a host's file is not there any more, or it fails: an environment "
        "was removed, a clone was moved, Python was renewed under it.",
        "mcp-workbench install HOST writes the entry anew, and so does mcp-workbench doctor --fix.",
    ),
    "WB-HOST-511": Explanation(
        "A host's entry names what is not there",
        "Our entry in a host's file names a configuration file that does not exist, or a toolbox that "
        "the configuration does not have. The host sees us fail at its start.",
        "mcp-workbench install HOST names the configuration of this folder, --toolbox another "
        "toolbox. mcp-workbench doctor --fix does the first of the two.",
    ),
    "WB-HOST-512": Explanation(
        "A host's entry leads elsewhere",
        "The entry in a host's file is not the one that was looked for: it serves another "
        "configuration, starts another version, is switched off, or is somebody else's program under "
        "our name. That may be meant, so it is never changed without being asked for.",
        "If it is not meant: mcp-workbench install HOST, in the folder of the configuration.",
    ),
    "WB-HOST-513": Explanation(
        "A host has servers directly that it also has through us",
        "Their tools are offered twice, under two names, which costs tokens and confuses a model.",
        "mcp-workbench install HOST --replace removes the direct ones; undo brings them back.",
    ),
    "WB-HOST-514": Explanation(
        "A host's entry depends on where the host was started",
        "Our entry in a host's file names the command without its folder, or no configuration, or one "
        "without its folder. Programs that are started from a desktop have another PATH than a shell, "
        "and start us in a folder that nobody knows.",
        "mcp-workbench install HOST writes full paths.",
    ),
    "WB-HOST-515": Explanation(
        "A host does not hand on variables that servers need",
        "Servers of the configuration ask for ${VARIABLES} without a default, and the host starts us "
        "without them. Those servers are unavailable there, whatever your shell has.",
        "mcp-workbench install HOST names them in the entry where the host can hand them on; else "
        "write their values into the env of the entry.",
    ),
}
