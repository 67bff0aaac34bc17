"""Every error code that we print, explained. Loaded by `explain` alone: start-up needs none of it."""

import msgspec


class Explanation(msgspec.Struct, frozen=True):
    """What `explain CODE` shows."""

    title: str
    meaning: str
    remedy: str


CODES = {
    "WB-CONF-001": Explanation(
        "The configuration file is not there",
        "A path was given by --config or $WORKBENCH_CONFIG, and nothing stands there. "
        "The demo toolbox is used only when no path was given at all.",
        "Correct the path, or leave both out and put workbench-config.json into the current folder.",
    ),
    "WB-CONF-002": Explanation(
        "The configuration file can't be read",
        "It is a folder, a pipe to which nobody writes, or the system refused to open it for this user.",
        "Name the file itself, and see that the user who runs this program may read it.",
    ),
    "WB-CONF-003": Explanation(
        "The configuration file is not UTF-8",
        "JSON is UTF-8 text. Some editors and shells on Windows write UTF-16 unless told otherwise.",
        "Save the file again as UTF-8, with or without a byte order mark.",
    ),
    "WB-CONF-004": Explanation(
        "The configuration file is empty",
        "There is nothing in it but white space.",
        'Begin with {"mcpServers": {}}, or delete the file to get the demo toolbox.',
    ),
    "WB-CONF-005": Explanation(
        "The configuration file is too large",
        "Nobody writes megabytes of settings; probably the path names another file.",
        "Name the configuration file itself.",
    ),
    "WB-CONF-006": Explanation(
        "Everybody can change the configuration file",
        "The file says which programs are started, so whoever can write it can run programs as you.",
        "chmod o-w FILE",
    ),
    "WB-CONF-007": Explanation(
        "The configuration file is not JSON",
        "The text stops being JSON at the line and column shown. Comments (// and /* */) and "
        "trailing commas are allowed; single quotes and names without quotes are not.",
        "Correct the text there. The mistake is often just before the place, such as a missing comma.",
    ),
    "WB-CONF-008": Explanation(
        "Another user can change the configuration file",
        "The file says which programs are started. It belongs to another user, or a group can write it that "
        "is not your private group: one of your name or number with nobody else in it. Where it was "
        "met in the current folder, or changes hands while it is served, it is refused; where you have named it "
        "(--config, $WORKBENCH_CONFIG), this is a warning. Files of root are trusted.",
        "Change the owner of the file or its rights (chmod g-w FILE), use a copy of your own, or name it with --config if you trust "
        "whoever can change it: under sudo, or as root in a container, that may be yourself.",
    ),
    "WB-CONF-009": Explanation(
        "Another user could put a file into the folder of the configuration",
        "The folder belongs to another user, or everybody can write to it, as to /tmp, or a group that is "
        "not your private group: whoever puts a "
        "file there decides which programs are started as you. Refused and allowed as WB-CONF-008 says.",
        "Keep the file in a folder of your own (chmod go-w FOLDER), or name it with --config if you "
        "trust everybody who can write there.",
    ),
    "WB-CONF-010": Explanation(
        "A value is not what this key takes",
        "It has the wrong type, is empty, out of range, or not one of the words that are allowed.",
        "Write what the message asks for; `mcp-workbench schema` lists every key.",
    ),
    "WB-CONF-012": Explanation(
        "A key is not known",
        "A warning: the key has no effect. Entries pasted from other programs often carry some.",
        "Use the key that the message names, or remove this one.",
    ),
    "WB-CONF-013": Explanation(
        "A name has characters that are not allowed",
        "Names of toolboxes, servers and tokens are made of A-Z, a-z, 0-9, hyphens and underscores.",
        "Rename it. Tool names are free: they belong to the servers.",
    ),
    "WB-CONF-014": Explanation(
        "A name does not work in dynamic mode",
        "Dynamic mode joins toolbox, server and tool by '__'. With '__' inside a name, or '_' at its "
        "end, the parts can't be told apart. In proxy mode this is only a warning.",
        "Rename it, for example with hyphens.",
    ),
    "WB-CONF-015": Explanation(
        "Both shapes in one file",
        "A file has either 'toolboxes', or only 'mcpServers', which is one toolbox 'default'.",
        "Move the servers of the outer 'mcpServers' into one of the toolboxes.",
    ),
    "WB-CONF-016": Explanation(
        "There are no servers in it",
        "The file has neither 'toolboxes' nor 'mcpServers', or a toolbox has no 'mcpServers'.",
        "Add the key. An empty object is allowed and means none.",
    ),
    "WB-CONF-017": Explanation(
        "Nothing is configured here",
        "A warning: 'toolboxes' or 'mcpServers' is an empty object.",
        "Add a toolbox or a server, or remove the empty one.",
    ),
    "WB-CONF-018": Explanation(
        "The entry does not say how to reach the server",
        "A server has a 'command' that is started here, or a 'url' where it listens.",
        "Add one of them. Some programs spell them otherwise: 'cmd', 'uri', 'serverUrl', 'httpUrl'.",
    ),
    "WB-CONF-019": Explanation(
        "The entry says two ways to reach the server",
        "It has both a 'command' and a 'url'.",
        "Keep one. Two servers need two entries.",
    ),
    "WB-CONF-020": Explanation(
        "The transport contradicts the entry",
        "'type' and 'transport' mean the same and must agree; 'stdio' goes with 'command', "
        "'http', 'streamable-http' and 'sse' go with 'url'.",
        "Remove 'type' and 'transport': they follow from the rest.",
    ),
    "WB-CONF-021": Explanation(
        "A variable is not set",
        "The entry asks for ${NAME}, which is not in the environment and has no default. This one "
        "server is unavailable until it is; the others work. A token of 'http' without its variable "
        "keeps `serve --http` from starting.",
        "Set the variable where this program is started, or write ${NAME:-} for an empty default. "
        "Hosts started from a desktop often don't see the variables of your shell.",
    ),
    "WB-CONF-022": Explanation(
        "A time looks like milliseconds",
        "A warning: times are in seconds here, and this one is longer than an hour.",
        "Divide it by 1000 if it came from a program that counts milliseconds.",
    ),
    "WB-CONF-023": Explanation(
        "A number or truth value where a string belongs",
        "A warning: variables and headers are strings. The text of the value is used.",
        "Put the value in double quotes.",
    ),
    "WB-CONF-024": Explanation(
        "A key occurs twice",
        "A warning: JSON lets the last one win, so the first has no effect.",
        "Remove or rename one of them.",
    ),
    "WB-CONF-026": Explanation(
        "A key has no effect here",
        "A warning: 'headers' is for a 'url'; 'args', 'env' and 'cwd' are for a 'command'.",
        "Remove it.",
    ),
    "WB-CONF-027": Explanation(
        "Something looks like a variable but is none",
        "A warning: only ${NAME} and ${NAME:-default} are replaced, once and not nested. Anything "
        "else, such as ${env:NAME} or ${input:id}, stays in the text as it is.",
        "Write ${NAME}, or $${ where a literal ${ is meant.",
    ),
    "WB-CONF-028": Explanation(
        "Bare names need dynamic mode",
        "`naming: bare` shows the tools of an endpoint under their servers' own names, without any tool "
        "of ours. Proxy mode has nothing else to show than tools of ours.",
        'Set "toolMode": "dynamic", or leave "naming" out.',
    ),
    "WB-CONF-030": Explanation(
        "The port would stand open to other machines",
        "`serve --http` was asked to listen on an address that other machines can reach. That needs "
        "a bearer token, so that not everybody may call, and the names under which it is reached, so "
        "that a web page can't call it through a name of its own.",
        "Set MCP_WORKBENCH_HTTP_TOKEN or http.token, and http.allowedHosts; or listen on 127.0.0.1.",
    ),
    "WB-CONF-031": Explanation(
        "The token for the port can't be used",
        "It is empty, has a character that an HTTP header can't carry, or is so short that other "
        "machines could guess it.",
        "Use 32 or more random letters and digits.",
    ),
    "WB-CONF-040": Explanation(
        "A named token has no token",
        "Each entry of http.tokens has a name of your choice, and under 'token' the variable that "
        "holds the bearer token itself.",
        'Write {"token": "${NAME}"}, and set the variable where this program is started.',
    ),
    "WB-CONF-041": Explanation(
        "A token names a toolbox that is not there",
        "A token opens the toolboxes that it lists, by their names in this file. One that does not "
        "exist opens nothing, so it is probably misspelled.",
        "Correct the name, or take it off the list.",
    ),
    "WB-CONF-042": Explanation(
        "Two tokens are the same",
        "Who asks is known by the token that comes with the request. Two names with one token could "
        "not be told apart, nor could one of them be revoked.",
        "Give each name a token of its own. Two names may open the same toolboxes.",
    ),
    "WB-CONF-043": Explanation(
        "A token stands in the file",
        "A warning: whoever can read the configuration, or a copy of it, can come in.",
        "Write ${NAME} in its place, and set the variable where this program is started.",
    ),
    "WB-CLI-001": Explanation(
        "The command line is not understood",
        "A command or option is not known, an argument is missing, or one does not fit the tool.",
        "mcp-workbench --help, or mcp-workbench COMMAND --help",
    ),
    "WB-CLI-002": Explanation(
        "There is no such toolbox",
        "The configuration that was found has no toolbox of this name.",
        "mcp-workbench tools lists all of them; --config names another file.",
    ),
    "WB-CLI-003": Explanation(
        "There is no such server",
        "The toolbox is there, but has no server of this name.",
        "mcp-workbench tools TOOLBOX lists its servers and tools.",
    ),
    "WB-CLI-004": Explanation(
        "There is no such tool",
        "The server answered, and shows no tool of this name: it has none, or toolFilters hides it.",
        "mcp-workbench tools TOOLBOX/SERVER lists those that are shown.",
    ),
    "WB-CLI-005": Explanation(
        "The system refused something",
        "A file could not be read, or the output could not be written, for the reason that is told.",
        "See to the reason; a full disk and a missing permission are the usual ones.",
    ),
    "WB-CONN-101": Explanation(
        "A server can't be reached",
        "It could not be started, ended at once, did not answer in time, or refused us. The cause is "
        "told with the error; the other servers work.",
        "Run the server's command by hand and see what it says, then mcp-workbench check --connect.",
    ),
    "WB-CONN-102": Explanation(
        "A server writes more than messages to its stdout",
        "A warning: on a pipe, stdout is for messages alone. Lines that are none are left out and "
        "counted, and calls work; other programs may be less patient.",
        "Tell the server to write its log to stderr or to a file, or tell its authors.",
    ),
    "WB-CONN-103": Explanation(
        "A program is found by the PATH of this shell alone",
        "A warning: servers get the PATH of the workbench, which gets that of its host. A host that "
        "is started from a desktop often has a shorter one, and says `spawn npx ENOENT` then.",
        "Write the absolute path as 'command'; `which npx` tells it.",
    ),
    "WB-CONN-104": Explanation(
        "A program that servers need is old",
        "A warning: `npx` is as old as its Node.js, and most servers ask for one that is still kept.",
        "Install a newer version, or name a newer one with its absolute path.",
    ),
    "WB-CALL-201": Explanation(
        "A call has no result",
        "The server took the call and then ended, was too busy, or did not answer in time. The tool "
        "may have run.",
        "See whether it did before you call again. A slow tool needs a larger 'timeout'.",
    ),
    "WB-CALL-202": Explanation(
        "The server refused the call",
        "It answered with an error of the protocol instead of a result; the message is its own.",
        "mcp-workbench tools TOOLBOX/SERVER/TOOL shows which arguments the tool takes.",
    ),
    "WB-CALL-203": Explanation(
        "The workbench is ending",
        "It was told to end (SIGTERM, Ctrl-C). What was under way gets its time, and what came later "
        "was turned away with the code `draining`; nothing of it was done.",
        "Call again when it is back. limits.drain says how long a port waits for what is under way.",
    ),
    "WB-TOOL-301": Explanation(
        "A filter matches nothing",
        "A warning: a pattern in toolFilters fits none of the tools that the server has.",
        "Correct its spelling, or remove it.",
    ),
    "WB-TOOL-302": Explanation(
        "A name is too long for some hosts",
        "A warning: hosts put their own prefix before a tool's name and cut, refuse or drop what "
        "is then too long. Up to 48 characters fit everywhere.",
        "Shorten the names of toolbox or server, or use proxy mode, which has no long names.",
    ),
    "WB-TOOL-303": Explanation(
        "A server lists a tool that can't be used",
        "A warning: a definition has no name, or one that another tool has. The others are shown.",
        "Tell the authors of the server.",
    ),
    "WB-TOUR-401": Explanation(
        "The tour broke off",
        "The built-in demo needs nothing but this program, so the installation is not sound.",
        "Install it again, and see that Python may start child processes here.",
    ),
    "WB-UP-501": Explanation(
        "The workbench in the background could not be started, asked or ended",
        "The reason is told with the error: the state folder can't be written or is not this user's, the "
        "port is taken, or it runs and does not answer.",
        "See mcp-workbench logs. The state folder is ~/.mcp-workbench, or MCP_WORKBENCH_HOME.",
    ),
    # `import`, `install`, `uninstall`, `undo`, and `doctor` about hosts
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
