"""The explanation of every error code that we print, for `explain` and the troubleshooting page.

Only `explain` loads this module.
"""

import msgspec


class Explanation(msgspec.Struct, frozen=True):
    """What `explain CODE` shows."""

    title: str
    meaning: str
    remedy: str


CODES = {
    "WB-CONF-001": Explanation(
        "The configuration file does not exist",
        "--config or $WORKBENCH_CONFIG names a file that does not exist. Other files, and the demo, "
        "are used only if neither is given.",
        "Correct the path, or leave both out; mcp-workbench init writes a new file.",
    ),
    "WB-CONF-002": Explanation(
        "The configuration file can't be read",
        "It is a folder, a pipe that nobody writes to, or this user is not allowed to open it.",
        "Name the file itself, and make sure that the user who runs this program may read it.",
    ),
    "WB-CONF-003": Explanation(
        "The configuration file is not UTF-8",
        "JSON is UTF-8 text. Some editors and shells on Windows write UTF-16 by default.",
        "Save the file again as UTF-8, with or without a byte order mark.",
    ),
    "WB-CONF-004": Explanation(
        "The configuration file is empty",
        "The file contains nothing but white space.",
        'Start with {"mcpServers": {}}, or delete the file to get the demo toolbox.',
    ),
    "WB-CONF-005": Explanation(
        "The configuration file is too large",
        "A configuration does not need megabytes; the path probably names another file.",
        "Name the configuration file itself.",
    ),
    "WB-CONF-006": Explanation(
        "The configuration file is world-writable",
        "The file says which programs are started, so everybody who can write it can run programs "
        "as you.",
        "chmod o-w FILE",
    ),
    "WB-CONF-007": Explanation(
        "The configuration file is not valid JSON",
        "The syntax error is at the line and column shown. Comments (// and /* */) and trailing "
        "commas are allowed; single quotes and names without quotes are not.",
        "Correct the text there. The cause is often just before that place, such as a missing comma.",
    ),
    "WB-CONF-008": Explanation(
        "Another user can change the configuration file",
        "The file says which programs are started. It belongs to another user, or is writable by a "
        "group other than your private group (one with your name or number and no other members). "
        "The file is refused if it was found and not named, or if its owner or permissions change "
        "while it is served. If you named it (--config, $WORKBENCH_CONFIG), this is a "
        "warning. Files of root are trusted.",
        "Change the owner or the permissions of the file (chmod g-w FILE), use a copy of your own, "
        "or name it with --config if you trust everybody who can change it: under sudo, or as root "
        "in a container, that may be yourself.",
    ),
    "WB-CONF-009": Explanation(
        "Another user can write to the folder of the configuration",
        "The folder belongs to another user, or is writable by everybody, like /tmp, or by a group "
        "other than your private group. Everybody who can put a file there decides which programs "
        "are started as you. The same rules as for WB-CONF-008 decide whether the file is refused.",
        "Keep the file in a folder of your own (chmod go-w FOLDER), or name it with --config if you "
        "trust everybody who can write there.",
    ),
    "WB-CONF-010": Explanation(
        "A value is not allowed for this key",
        "It has the wrong type, is empty, is out of range, or is not one of the allowed words.",
        "Write what the message asks for; `mcp-workbench schema` lists every key.",
    ),
    "WB-CONF-012": Explanation(
        "A key is unknown",
        "A warning: the key has no effect. Entries copied from other programs often have such keys.",
        "Use the key that the message names, or remove this one.",
    ),
    "WB-CONF-013": Explanation(
        "A name has characters that are not allowed",
        "Names of toolboxes, servers and tokens consist of A-Z, a-z, 0-9, hyphens and underscores.",
        "Rename it. This does not apply to tool names: they belong to the servers.",
    ),
    "WB-CONF-014": Explanation(
        "A name does not work in dynamic mode",
        "Dynamic mode joins toolbox, server and tool by '__'. With '__' inside a name, or '_' at its "
        "end, the parts are ambiguous. In proxy mode this is only a warning.",
        "Rename it, for example with hyphens.",
    ),
    "WB-CONF-015": Explanation(
        "Both formats in one file",
        "A file has either 'toolboxes', or only 'mcpServers', which is one toolbox 'default'.",
        "Move the servers of the outer 'mcpServers' into one of the toolboxes.",
    ),
    "WB-CONF-016": Explanation(
        "No servers are configured",
        "The file has neither 'toolboxes' nor 'mcpServers', or a toolbox has no 'mcpServers'.",
        "Add the key. An empty object is allowed and means no servers.",
    ),
    "WB-CONF-017": Explanation(
        "'toolboxes' or 'mcpServers' is empty",
        "A warning: the object has no members, so it configures nothing.",
        "Add a toolbox or a server, or remove the empty object.",
    ),
    "WB-CONF-018": Explanation(
        "The entry does not say how to reach the server",
        "A server has either a 'command' to start, or a 'url' to connect to.",
        "Add one of them. Some programs spell them otherwise: 'cmd', 'uri', 'serverUrl', 'httpUrl'.",
    ),
    "WB-CONF-019": Explanation(
        "The entry has both a 'command' and a 'url'",
        "A server is reached in one of these two ways.",
        "Keep one. Two servers need two entries.",
    ),
    "WB-CONF-020": Explanation(
        "The transport contradicts the entry",
        "'type' and 'transport' mean the same and must agree; 'stdio' requires 'command', "
        "'http', 'streamable-http' and 'sse' require 'url'.",
        "Remove 'type' and 'transport': they follow from the rest.",
    ),
    "WB-CONF-021": Explanation(
        "A variable is not set",
        "The entry refers to ${NAME}, which is not in the environment and has no default. Only this "
        "server is unavailable. If a token of 'http' refers to it, `serve --http` does not start.",
        "Set the variable where this program is started, or write ${NAME:-} for an empty default. "
        "Hosts started from a desktop often don't have the variables of your shell.",
    ),
    "WB-CONF-022": Explanation(
        "A time looks like milliseconds",
        "A warning: times are in seconds here, and this one is longer than an hour.",
        "Divide it by 1000 if it comes from a program that counts milliseconds.",
    ),
    "WB-CONF-023": Explanation(
        "A number or a boolean where a string is expected",
        "A warning: variables and headers are strings. The value is used as text.",
        "Put the value in double quotes.",
    ),
    "WB-CONF-024": Explanation(
        "A key occurs twice",
        "A warning: in JSON the last one wins, so the first has no effect.",
        "Remove or rename one of them.",
    ),
    "WB-CONF-026": Explanation(
        "A key has no effect here",
        "A warning: 'headers' is for a 'url'; 'args', 'env' and 'cwd' are for a 'command'.",
        "Remove it.",
    ),
    "WB-CONF-027": Explanation(
        "Text that looks like a variable is not expanded",
        "A warning: only ${NAME} and ${NAME:-default} are expanded, once and not nested. Anything "
        "else, such as ${env:NAME} or ${input:id}, is left as it is.",
        "Write ${NAME}, or $${ for a literal ${.",
    ),
    "WB-CONF-028": Explanation(
        "Bare names need dynamic mode",
        "`naming: bare` shows the tools of an endpoint under their servers' own names, without the "
        "workbench's own tools. Proxy mode shows only the workbench's own tools.",
        'Set "toolMode": "dynamic", or leave "naming" out.',
    ),
    "WB-CONF-030": Explanation(
        "The port would be open to other machines",
        "`serve --http` was asked to listen on an address that other machines can reach. This "
        "requires a bearer token or an issuer, so that not everybody may call, and the host names under which it "
        "is reached, so that a web page can't call it through a name of its own.",
        "Set MCP_WORKBENCH_HTTP_TOKEN, http.token or http.auth, and http.allowedHosts; or listen on "
        "127.0.0.1.",
    ),
    "WB-CONF-031": Explanation(
        "The HTTP token can't be used",
        "It is empty, has a character that an HTTP header can't contain, or is so short that other "
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
        "A token names a toolbox that does not exist",
        "A token gives access to the toolboxes that it lists, by their names in this file. This "
        "name is probably misspelled.",
        "Correct the name, or remove it from the list.",
    ),
    "WB-CONF-042": Explanation(
        "Two tokens are the same",
        "A request is attributed to the name of its token. If two names share one token, they can't "
        "be distinguished, and neither can be revoked alone.",
        "Give each name a token of its own. Two names may open the same toolboxes.",
    ),
    "WB-CONF-043": Explanation(
        "A token is written in the file",
        "A warning: everybody who can read the configuration, or a copy of it, can use the token.",
        "Write ${NAME} in its place, and set the variable where this program is started.",
    ),
    "WB-CONF-044": Explanation(
        "The issuer of access tokens is not configured completely",
        "http.auth names an issuer, at which people sign in, and the audience of its tokens: normally "
        "the URL of /mcp that hosts use. The issuer and what belongs to it are https, or on this "
        "machine; an audience that is not that URL needs 'resource' beside it.",
        "Write what the message asks for; docs/sign-in-hosts.md has an example for each case.",
    ),
    "WB-CONF-045": Explanation(
        "The packages that check access tokens are not installed",
        "http.auth is set, and signatures of tokens are checked with PyJWT and cryptography, which "
        "are installed only on request.",
        "pip install 'mcp-workbench-gateway[auth]', in the environment of this program.",
    ),
    "WB-CONF-046": Explanation(
        "A secret has no usable source",
        "An entry of 'secrets' is \"store\", \"keyring\", or an object with exactly one of 'keyring', "
        "'command' and 'file'. A value itself never belongs there.",
        'Name one source, such as {"command": ["pass", "show", "github"]}.',
    ),
    "WB-CONF-047": Explanation(
        "A secret is in the arguments of a command",
        "Arguments are expanded like everything else, and every user of the machine can read the "
        "arguments of a running program.",
        "Give the secret to the server in 'env', if the server takes it from a variable.",
    ),
    "WB-CLI-001": Explanation(
        "The command line is not valid",
        "A command or option is unknown, an argument is missing, or an argument does not fit the "
        "tool.",
        "mcp-workbench --help, or mcp-workbench COMMAND --help",
    ),
    "WB-CLI-002": Explanation(
        "There is no such toolbox",
        "The configuration in use has no toolbox of this name.",
        "mcp-workbench tools lists all of them; --config selects another file.",
    ),
    "WB-CLI-003": Explanation(
        "There is no such server",
        "The toolbox exists, but has no server of this name.",
        "mcp-workbench tools TOOLBOX lists its servers and tools.",
    ),
    "WB-CLI-004": Explanation(
        "There is no such tool",
        "The server has no tool of this name, or toolFilters hides it.",
        "mcp-workbench tools TOOLBOX/SERVER lists those that are shown.",
    ),
    "WB-CLI-005": Explanation(
        "The operating system reported an error",
        "A file could not be read, or the output could not be written. The message gives the reason.",
        "Fix the reason; a full disk and a missing permission are the usual ones.",
    ),
    "WB-CONN-101": Explanation(
        "A server can't be reached",
        "It could not be started, exited during startup, did not respond in time, or refused the "
        "connection. The message gives the cause; the other servers work.",
        "Run the server's command by hand and read its output, then mcp-workbench check --connect.",
    ),
    "WB-CONN-102": Explanation(
        "A server writes more than messages to its stdout",
        "A warning: over stdio, stdout is for messages only. Other lines are skipped and counted, "
        "and calls work; other programs may refuse such a server.",
        "Make the server write its log to stderr or to a file, or report it to its authors.",
    ),
    "WB-CONN-103": Explanation(
        "A program is found only through the PATH of this shell",
        "A warning: servers inherit the PATH of the workbench, which inherits that of its host. A "
        "host that is started from a desktop often has a shorter one, and then reports `spawn npx "
        "ENOENT`.",
        "Write the absolute path as 'command'; `which npx` prints it.",
    ),
    "WB-CONN-104": Explanation(
        "A program that servers need is outdated",
        "A warning: `npx` comes with Node.js, and most servers require a version that is still "
        "maintained.",
        "Install a newer version, or write the absolute path of a newer one.",
    ),
    "WB-CONN-105": Explanation(
        "A server can't be started on this machine",
        "A warning: its command does not exist or can't be executed, or its working folder can't be "
        "used. The other servers work.",
        "Install the program, correct 'command' or 'cwd', or set \"disabled\": true.",
    ),
    "WB-CONN-106": Explanation(
        "The issuer of access tokens gives no keys",
        "http.auth names an issuer whose tokens hosts bring. Its metadata or its keys can't be "
        "fetched, or it has no key that we accept. Until that works, hosts that sign in get 503.",
        "Compare http.auth.issuer with `iss` in a token, letter by letter; if the keys are on another "
        "host, write http.auth.jwksUri. docs/sign-in-hosts.md tells how they are found.",
    ),
    "WB-CALL-201": Explanation(
        "A call has no result",
        "The server accepted the call and then exited, was too busy, or did not respond in time. "
        "The tool may have run.",
        "Check whether it did before you call again. A slow tool needs a larger 'timeout'.",
    ),
    "WB-CALL-202": Explanation(
        "The server rejected the call",
        "It responded with a JSON-RPC error instead of a result; the message is the server's own.",
        "mcp-workbench tools TOOLBOX/SERVER/TOOL shows which arguments the tool takes.",
    ),
    "WB-CALL-203": Explanation(
        "The workbench is shutting down",
        "It received SIGTERM or Ctrl-C. Calls in flight may still finish; later ones are refused "
        "with the code `draining`, and were not run.",
        "Call again once it is back. limits.drain sets how long a port waits for calls in flight.",
    ),
    "WB-TOOL-301": Explanation(
        "A filter matches nothing",
        "A warning: a pattern in toolFilters matches none of the server's tools.",
        "Correct its spelling, or remove it.",
    ),
    "WB-TOOL-302": Explanation(
        "A name is too long for some hosts",
        "A warning: hosts put a prefix of their own before a tool's name, and cut, refuse or drop "
        "names that are then too long. Up to 48 characters work everywhere.",
        "Shorten the name of the toolbox or the server, or use proxy mode, which has no long names.",
    ),
    "WB-TOOL-303": Explanation(
        "A server lists a tool that can't be used",
        "A warning: a definition has no name, or the name of another tool. The others are shown.",
        "Report it to the authors of the server.",
    ),
    "WB-TOUR-401": Explanation(
        "The tour failed",
        "The built-in demo needs nothing but this program, so the installation is broken.",
        "Reinstall it, and make sure that Python may start child processes here.",
    ),
    "WB-UP-501": Explanation(
        "The shared workbench could not be started, queried or stopped",
        "The message gives the reason: the state folder is not writable or belongs to another user, "
        "the port is in use, or the process runs but does not respond.",
        "See mcp-workbench logs. The state folder is ~/.mcp-workbench, or MCP_WORKBENCH_HOME.",
    ),
    # Signing in
    "WB-AUTH-001": Explanation(
        "The server can't be signed in to",
        "It answers without credentials, so it asks for no sign-in; or its entry has no usable URL.",
        "Check its entry with mcp-workbench check --connect. A server that takes a fixed token wants it in 'headers'.",
    ),
    "WB-AUTH-002": Explanation(
        "The sign-in was declined",
        "The person, or the authorization server on their behalf, refused access.",
        "Run mcp-workbench login again and allow access, or sign in with another account.",
    ),
    "WB-AUTH-003": Explanation(
        "The authorization server does not know this program",
        "It registers no clients by itself, refused to register this one, or has forgotten or expired "
        "the registration.",
        "Run mcp-workbench login again, which registers anew. If the server wants a client that is "
        "registered by hand, write its 'clientId' (and 'clientSecret') in 'auth'.",
    ),
    "WB-AUTH-004": Explanation(
        "The authorization server can't be reached",
        "There is no network, the name can't be resolved, or it answered with an error of its own. "
        "Nothing is lost: the tokens are kept, and the next call tries again.",
        "Check the network and any proxy, then repeat the call or the command.",
    ),
    "WB-AUTH-005": Explanation(
        "The sign-in metadata of the server can't be used",
        "It names another server or another issuer than the one that published it, lacks an endpoint, "
        "or is no valid JSON. Tokens for one server must never reach another, so nothing is sent.",
        "Check 'url'. If it is right, report the message to the people who run the server.",
    ),
    "WB-AUTH-006": Explanation(
        "The authorization server refused the sign-in",
        "Its answer has an error, no code, another issuer, or belongs to another sign-in.",
        "Run mcp-workbench login again, and use only the newest address.",
    ),
    "WB-AUTH-007": Explanation(
        "Nobody signed in in time",
        "The address or the device code was not used before it expired.",
        "Run mcp-workbench login again; --timeout SECONDS waits longer. If the browser ended at an "
        "address that it could not open, use --no-browser and paste that address.",
    ),
    "WB-AUTH-008": Explanation(
        "The port for the redirect is in use",
        "Another program listens at the port that 'auth.redirectPort' names.",
        "End that program, or choose another port and register it with the client.",
    ),
    "WB-AUTH-009": Explanation(
        "No browser could be started",
        "A warning: there is no desktop here, or no browser is installed. Nothing else is wrong.",
        "Open the address in any browser of this machine. Over SSH use mcp-workbench login "
        "--no-browser, or --device where the server offers it.",
    ),
    "WB-AUTH-010": Explanation(
        "The server sends us to a private address",
        "An address that a server names for sign-in must be https and on the public internet, or have "
        "the server's own origin. Otherwise a server could make this machine call its neighbours.",
        "If the authorization server is yours, add its origin to 'auth.allowedOrigins' of the entry.",
    ),
    "WB-AUTH-011": Explanation(
        "The sign-in can't be kept",
        "The folder of credentials is not writable, belongs to another user, or is open to others.",
        "Fix the reason; the folder is ~/.mcp-workbench/credentials, with mode 700.",
    ),
    "WB-AUTH-012": Explanation(
        "A server needs a login",
        "It answered 401 or 403: nobody has signed in, the sign-in has ended, the account has no "
        "access, or the server wants more rights.",
        "mcp-workbench login TOOLBOX/SERVER. If it says that it refuses this account, sign in with another.",
    ),
    "WB-AUTH-013": Explanation(
        "The clock of this machine is off",
        "A warning: it differs by more than five minutes from that of the authorization server. Sign-ins go on, "
        "but certificates may count as expired or not yet valid, and signed requests may be refused.",
        "Set the clock (timedatectl set-ntp true, or the settings of the system), then repeat the command.",
    ),
    "WB-AUTH-015": Explanation(
        "A person can't sign in for themselves now",
        'The server has "scope": "principal". Either too many sign-ins of this person are open, or it is not '
        "known at which address a browser reaches the workbench.",
        "Complete an open sign-in, or wait ten minutes. Whoever runs the workbench can use "
        "mcp-workbench login TOOLBOX/SERVER --principal NAME.",
    ),
    "WB-AUTH-020": Explanation(
        "The private key of the client can't be used",
        "'auth.privateKey' names a file that can't be read, that holds no private key, or a key that the "
        "authorization server accepts no signature of; or the packages that sign are not installed. As a "
        "warning: other users of this machine can read the key.",
        "The file must hold an RSA, EC or Ed25519 key in PEM format without a passphrase, with mode 600. The "
        "packages: pip install 'mcp-workbench-gateway[auth]'",
    ),
    # `import`, `install`, `uninstall`, `undo`, and `doctor` about hosts
    "WB-SEC-601": Explanation(
        "The keyring gives no value",
        "The package keyring is not installed, there is no keyring where the workbench runs (as on most "
        "machines without a desktop), it is locked, it has no such entry, or it has not answered in time. "
        "The servers that need the value are unavailable; nothing else is. Nobody is asked on a terminal.",
        "pip install 'mcp-workbench-gateway[keyring]', unlock the keyring, or set the entry: keyring set "
        "SERVICE USERNAME. On a machine without a keyring use the store, a file or a command.",
    ),
    "WB-SEC-602": Explanation(
        "The command of a secret fails",
        "It was not found, ended with an exit status other than 0, printed too much or no text, or has not "
        "ended within its 'timeout'. It has no terminal and an empty stdin, so it can't ask for a password. "
        "What it writes to stderr is not shown, because it may be the secret.",
        "Run the command in a terminal and see what it says; sign in or unlock what it needs.",
    ),
    "WB-SEC-603": Explanation(
        "The file of a secret can't be used",
        "It can't be read, belongs to another user, or other users can read it.",
        "chmod 600 FILE, or correct the path. What another program provides for several users can be read "
        'with a command: {"command": ["cat", "/run/secrets/NAME"]}.',
    ),
    "WB-SEC-604": Explanation(
        "The encrypted store has no such secret",
        "The configuration takes a variable from the store of this user, and nothing was stored under its "
        "name.",
        "mcp-workbench secret set NAME; mcp-workbench secret list shows what is there.",
    ),
    "WB-SEC-605": Explanation(
        "The encrypted store can't be used",
        "The package cryptography is not installed, the store or its key can't be read or written, or a "
        "value was not sealed with this key: the key was lost, or the store was changed by another program.",
        "pip install 'mcp-workbench-gateway[secrets]'. If the key is lost, remove the folder secrets in the "
        "state folder and set the secrets again: nobody can read them without it.",
    ),
    "WB-SEC-606": Explanation(
        "A secret was not read in time",
        "Its source did not come back, such as a file on a drive that hangs.",
        "See that the source can be read; the next call of the server tries again.",
    ),
    "WB-HOST-501": Explanation(
        "A host's file can't be read",
        "The file is not valid JSON or TOML, not UTF-8, too large, not a regular file, or has no "
        "servers in it. The message shows the place; nothing was changed.",
        "Correct the text there. If the host itself reads the file, report which part we refuse.",
    ),
    "WB-HOST-502": Explanation(
        "A file has changed since the preview",
        "Another program, often the host itself, wrote the file after the preview was shown. The "
        "change may no longer apply, so the file was not touched.",
        "Run the command again. Quit the host first if it happens again.",
    ),
    "WB-HOST-503": Explanation(
        "Confirmation is required",
        "Files of other programs are changed only after a preview and a confirmation. Here stdin is "
        "not a terminal, or --no-input or --json was given.",
        "Read the preview, then add --yes. --dry-run shows the preview and exits with success.",
    ),
    "WB-HOST-504": Explanation(
        "The host's own command failed",
        "Some hosts have a command that writes their file. It failed, did not finish, or did not "
        "write what was expected. The file is unchanged.",
        "Run the command of the preview by hand and read its output, or use --edit.",
    ),
    "WB-HOST-505": Explanation(
        "A file can't be edited without rewriting it",
        "The place where the entry belongs is not an object, or is written inside another value, "
        "such as an inline table of TOML. We change single members and leave everything else as it "
        "is.",
        "Rewrite that place in the usual form, or make the change by hand.",
    ),
    "WB-HOST-506": Explanation(
        "There is no such host",
        "The name is neither a host that this program knows nor a file.",
        "mcp-workbench install --help; docs/hosts.md lists the names.",
    ),
    "WB-HOST-507": Explanation(
        "There is nothing to undo",
        "No change has this number, or it has been undone already.",
        "mcp-workbench undo --list shows all changes. MCP_WORKBENCH_HOME says where they are stored.",
    ),
    "WB-HOST-508": Explanation(
        "This host's file is not written",
        "We do not edit this kind of file, or the host has none for this scope.",
        "Add the entry by hand: docs/hosts.md shows it.",
    ),
    "WB-HOST-509": Explanation(
        "There is no configuration to install",
        "An entry in a host names a configuration file, and none was found. The demo toolbox can't "
        "be installed.",
        "mcp-workbench import makes one from the hosts' own files, mcp-workbench add NAME -- COMMAND "
        "from a command line, mcp-workbench init an empty one.",
    ),
    "WB-HOST-510": Explanation(
        "A host's entry can't be started",
        "The command of our entry in a host's file no longer exists, or it fails: a virtual "
        "environment was removed, a clone was moved, or Python was upgraded.",
        "mcp-workbench install HOST rewrites the entry, and so does mcp-workbench doctor --fix.",
    ),
    "WB-HOST-511": Explanation(
        "A host's entry names a missing file or toolbox",
        "Our entry in a host's file names a configuration file that does not exist, or a toolbox that "
        "the configuration does not have. The workbench fails when the host starts it.",
        "mcp-workbench install HOST names the configuration of this folder, --toolbox another "
        "toolbox. mcp-workbench doctor --fix does the first of the two.",
    ),
    "WB-HOST-512": Explanation(
        "A host's entry is not the expected one",
        "The entry in a host's file serves another configuration, starts another version, is "
        "disabled, or starts another program under our name. This may be intended, so it is never "
        "changed unless you ask for it.",
        "If it is not intended: mcp-workbench install HOST, in the folder of the configuration.",
    ),
    "WB-HOST-513": Explanation(
        "A host has servers directly that it also has through us",
        "Their tools are offered twice, under two names, which costs tokens and confuses a model.",
        "mcp-workbench install HOST --replace removes those that are connected here with the same "
        "account, and says why others stay; uninstall --restore or undo puts them back.",
    ),
    "WB-HOST-514": Explanation(
        "A host's entry depends on where the host was started",
        "Our entry in a host's file has a command without its folder, no configuration, or a "
        "configuration without its folder. Programs that are started from a desktop have another "
        "PATH than a shell, and another working folder.",
        "mcp-workbench install HOST writes full paths.",
    ),
    "WB-HOST-515": Explanation(
        "A host does not pass on variables that servers need",
        "Servers of the configuration refer to ${VARIABLES} without a default, and the host starts "
        "the workbench without them. Those servers are unavailable there, whatever your shell has.",
        "mcp-workbench install HOST names them in the entry if the host can pass them on; otherwise "
        "write their values into the env of the entry.",
    ),
    "WB-HOST-516": Explanation(
        "The toolbox has a server of this name already",
        "`add` does not change an entry that exists, unless told so. The file is unchanged.",
        "Choose another name, or add --replace. mcp-workbench list shows the servers.",
    ),
    "WB-HOST-517": Explanation(
        "There is a configuration file already",
        "`init` writes a new file and never replaces one.",
        "mcp-workbench add and import add servers to the existing file; --config names another.",
    ),
    "WB-HOST-518": Explanation(
        "A registry can't be used",
        "The address that --registry or MCP_WORKBENCH_ADD_REGISTRY names can't be reached, refuses, or "
        "is no MCP registry: it must answer /v0.1/servers/NAME/versions/latest with JSON.",
        "Check the address and the network, or save the server.json and add that file.",
    ),
}
