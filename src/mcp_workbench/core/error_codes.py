"""The explanation of every error code that we print, for `explain` and the troubleshooting page.

Only `explain` loads this module.
"""

from mcp_workbench.core.configuration_codes import CONFIGURATION_CODES
from mcp_workbench.core.explanation import Explanation

CODES = {
    **CONFIGURATION_CODES,
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
    "WB-CONN-107": Explanation(
        "The engine of the cluster can't be used",
        "'cluster' names a Valkey or Redis that all replicas share. It can't be reached, does not accept the "
        "password, or can't be written to. A replica that runs goes on with the sessions that it has, and "
        "tries again all the time; one that starts needs the engine.",
        "See that it runs and that cluster.url has its address, user and password.",
    ),
    "WB-CONN-108": Explanation(
        "This replica does not fit the cluster",
        "Replicas under the same name have another key, the engine grants no lease, or the address of this replica "
        "is not one by which the others reach it. Each of them would serve some requests and lose others, so a replica "
        "does not start like that.",
        "Do what the message says: the same cluster.key everywhere, another cluster.name for another cluster, an "
        "address in cluster.advertise that leads to this replica.",
    ),
    "WB-BOX-701": Explanation(
        "No sandbox can be made here",
        "The server has a 'sandbox', and bubblewrap (bwrap) is not installed, or may not make namespaces: "
        "many containers and some systems forbid that to ordinary users. A server never runs without the "
        "sandbox of its entry, so it is unavailable; the others work.",
        "Install bubblewrap with the package manager of the system. If it is installed: allow user namespaces to "
        'it, on the machine or in the container. Or write "sandbox": "auto" (without one where there is none) or "off".',
    ),
    "WB-BOX-702": Explanation(
        "A path does not fit the sandbox of its server",
        "The program of the server is not among the files that its sandbox grants, a path is in /proc, or, as a "
        "warning, a path does not exist and is left out.",
        "Add the folder of the program to 'sandbox.read', or correct the path. docs/sandbox.md tells what a "
        "sandbox contains.",
    ),
    "WB-BOX-703": Explanation(
        "A resource limit can't be enforced",
        "The system limits no processes of root, counts them per sandbox from Linux 5.14 on, and lets a user "
        "lower limits only. A limit that has no effect is not pretended: the server is unavailable.",
        "Do what the message says, or remove the limit from 'resourceLimits'.",
    ),
    "WB-BOX-704": Explanation(
        "A server may write the folder of the configuration",
        "A warning: the configuration decides what is started outside of any sandbox. The file itself is read-only in the "
        "sandbox, but only until an editor replaces it, and files beside it can be written.",
        "Keep the configuration in another folder, or grant the server less than its whole folder.",
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
    "WB-CALL-204": Explanation(
        "A call is not allowed",
        "The configuration wants a person to approve it ('approve'), and the person said no, did not answer "
        "in time, or can't be asked: the host supports no elicitation, or `call` has no terminal. Or calls "
        "must be recorded ('audit': 'required') and can't be. Nothing was sent to the server.",
        "Call again and approve it, in a host that supports elicitation or with mcp-workbench call on a "
        "terminal; or change 'approve'. docs/approvals.md tells who is asked, and when.",
    ),
    "WB-CALL-205": Explanation(
        "A script has failed",
        "It raised an exception, has an error in its syntax, or made a call that it never awaited. The message shows "
        "the line, and the list of calls says which of them may have run.",
        "Correct the line that is shown. A script that is run again makes all its calls again.",
    ),
    "WB-CALL-206": Explanation(
        "A script was ended at a limit",
        "It computed for too long, took too long in all, needed too much memory, made too many calls, or printed or "
        "returned too much. The message names the limit; the list of calls says which of them may have run.",
        "Split the work into several scripts. mcp-workbench run --help lists the options that raise limits on a terminal.",
    ),
    "WB-CALL-207": Explanation(
        "Scripts can't be run",
        "The extra 'code' is not installed, the process that runs scripts can't be started or has ended, or too many "
        "scripts are running.",
        "pip install 'mcp-workbench-gateway[code]', in the environment of this program; or try again in a moment.",
    ),
    "WB-TOOL-301": Explanation(
        "A filter matches nothing",
        "A warning: a pattern in toolFilters or approve matches none of the server's tools.",
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
    "WB-TOOL-304": Explanation(
        "A definition conceals text",
        "A warning: a tool, a prompt, a template or the instructions of a server have characters that people "
        "can't see and models can read, such as tag characters, bidirectional overrides, zero-width characters in "
        "words, escape sequences or look-alike letters. Nothing is blocked.",
        "Read the excerpt, in which they are spelled out. Without a good reason for them, remove the server "
        "and report it.",
    ),
    "WB-TOOL-305": Explanation(
        "A definition has a suspicious phrase",
        "A warning: a tool, a prompt, a template or the instructions of a server ask for secrecy, override other "
        "instructions, want another tool to be called first, name credentials or shell commands, or "
        "praise themselves. Honest servers do so now and then, and not every attack is recognized. Nothing "
        "is blocked.",
        "Read the definition, and decide whether it fits what the tool is for.",
    ),
    # The lock file
    "WB-LOCK-001": Explanation(
        "The lock file can't be used",
        "mcp-workbench.lock, beside the configuration, is not valid: it was edited or merged in a way that leaves its "
        "meaning open, everybody can change it, or it can't be read or written. At the levels pin and review "
        "no server is started until that is fixed; at the level record nothing is compared.",
        "Correct it at the place that the message names, or take the last version from your version control. If "
        "there is none, remove the file and run mcp-workbench lock: everything counts as new then.",
    ),
    "WB-LOCK-002": Explanation(
        "A server, a tool or a prompt is in quarantine",
        "Its launch line or its definition is not the one in mcp-workbench.lock, or is not in it, and 'lock' is "
        "pin or review. It is not listed, not found and not called.",
        "Read it with mcp-workbench lock diff TOOLBOX/SERVER, and approve it in a terminal with the command that "
        "this prints; or remove the server.",
    ),
    "WB-LOCK-003": Explanation(
        "A definition differs from the lock file",
        "A warning: a server defines something else than mcp-workbench.lock has recorded. At the level record it is "
        "used all the same.",
        "Read the difference with mcp-workbench lock diff. If it is right, mcp-workbench lock records it (levels "
        "pin and review: mcp-workbench lock approve).",
    ),
    "WB-LOCK-004": Explanation(
        "Nothing was approved",
        "Only a person at a terminal can approve or reject, and the hash must be that of what the server defines "
        "at this moment.",
        "Run mcp-workbench lock diff in a terminal, read it, and use the command that it prints.",
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
        "PATH than a shell, and another working folder. An entry that runs `python -m` without -P, as "
        "older versions wrote it, runs Python files of that folder, which may be a foreign project's.",
        "mcp-workbench install HOST writes full paths, and -P.",
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
    "WB-HOST-519": Explanation(
        "A host has one name for two tools",
        "A warning of check --host: a host replaces characters in names of tools, or cuts long ones, and two tools "
        "then have the same name there. It calls one of them, or neither, and its rules apply to both.",
        "Hide one with toolFilters, rename a toolbox or a server, or use proxy mode.",
    ),
    "WB-HOST-520": Explanation(
        "A host does not see tools of opened toolboxes",
        "A warning of check --host: in dynamic mode the tools of a toolbox are listed once it is opened, and this host "
        "does not, or not always, read its list again. It can call them with use_tool alone.",
        "Use proxy mode, or open toolboxes from the start: mcp-workbench install HOST --toolbox NAME.",
    ),
}
