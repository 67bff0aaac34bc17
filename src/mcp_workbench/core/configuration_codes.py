"""The explanations of error codes about the configuration file; see `error_codes`."""

from mcp_workbench.core.explanation import Explanation

CONFIGURATION_CODES = {
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
    "WB-CONF-048": Explanation(
        "Scripts are switched on, but can't be offered",
        "A warning: 'scripts' is true, and the package that runs them is installed only on request; or 'naming' is "
        '"bare", which shows no tool of ours.',
        "pip install 'mcp-workbench-gateway[code]', in the environment of this program; or leave 'scripts' out.",
    ),
    "WB-CONF-055": Explanation(
        "A sandbox can't be used as it is written",
        "A path of 'sandbox' is empty or in /proc, of which a sandbox has its own.",
        "Write another path. docs/sandbox.md describes the keys.",
    ),
    "WB-CONF-056": Explanation(
        "A sandbox does not limit the network to domains",
        "A warning: VS Code's 'allowedDomains' names domains that a server may reach. Here a sandbox has "
        "the whole network or none, and this one has it.",
        'Write "network": true if that is intended, "network": false for none.',
    ),
    "WB-CONF-060": Explanation(
        "The cluster is not configured completely",
        "'cluster' has the URL of a Valkey or Redis and a key of at least 32 characters, both the same for "
        "all replicas, and an address that the other replicas can reach.",
        "Write what the message asks for; docs/scale.md has an example.",
    ),
    "WB-CONF-061": Explanation(
        "The packages for a cluster are not installed",
        "'cluster' is set. What encrypts the values that lie in the engine is installed only on request.",
        "pip install 'mcp-workbench-gateway[cluster]', in the environment of this program.",
    ),
    "WB-CONF-065": Explanation(
        "Everybody could read the metrics",
        "'http.metrics' is true, and the port is not open to everybody: it has tokens or an issuer, or other machines "
        "can reach it. /metrics shows names of toolboxes and servers and how they are used, and the tokens of hosts "
        "do not open it.",
        "Give it a token of its own, 'http.metricsToken', or leave 'http.metrics' out.",
    ),
    "WB-CONF-066": Explanation(
        "Traces are switched on, but can't be sent",
        "A warning: 'tracing' is true, and the packages of OpenTelemetry are installed only on request.",
        "pip install 'mcp-workbench-gateway[otel]', in the environment of this program; or leave 'tracing' out.",
    ),
    "WB-CONF-069": Explanation(
        "One process for all replicas is not possible here",
        "\"placement\": \"one\" is for a server with a 'command' in a configuration with a 'cluster'. Its process is "
        "shared by all hosts, so it can't be one per session or folder at the same time.",
        "Remove 'placement', or what it contradicts; docs/scale.md has an example.",
    ),
}
