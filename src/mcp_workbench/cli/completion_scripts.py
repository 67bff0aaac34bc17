"""The completion scripts of bash, zsh and fish, printed without loading anything."""

from __future__ import annotations

from mcp_workbench.cli.main import COMPLETE as ASKED  # the words up to the cursor, one on each line

# Each runs the command itself, which answers with lines of KIND, tab, VALUE, tab, HELP.
BASH = """\
_mcp_workbench() {
    local IFS=$'\\n' kind value help
    COMPREPLY=()
    while IFS=$'\\t' read -r kind value help; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            *) COMPREPLY+=("$value"); [[ $value == */ ]] && compopt -o nospace ;;
        esac
    done < <(_MCP_WORKBENCH_COMPLETE="${COMP_WORDS[*]:1:COMP_CWORD}" "$1" 2>/dev/null </dev/null)
}
complete -F _mcp_workbench mcp-workbench
"""
ZSH = """\
#compdef mcp-workbench
_mcp_workbench() {
    local kind value help
    local -a open closed described
    while IFS=$'\\t' read -r kind value help; do
        case $kind in
            file) _files ;;
            dir) _files -/ ;;
            *) if [[ $value == */ ]]; then open+=("$value")
               elif [[ -n $help ]]; then described+=("${value//:/\\\\:}:$help")
               else closed+=("$value"); fi ;;
        esac
    done < <(_MCP_WORKBENCH_COMPLETE="${(F)words[2,CURRENT]}" ${words[1]} 2>/dev/null </dev/null)
    (( $#described )) && _describe -V 'mcp-workbench' described
    (( $#open )) && compadd -S '' -a open
    (( $#closed )) && compadd -a closed
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _mcp_workbench "$@"
else
    compdef _mcp_workbench mcp-workbench
fi
"""
FISH = """\
function _mcp_workbench
    set -l words (commandline -opc) (commandline -ct)
    set -lx _MCP_WORKBENCH_COMPLETE (string join \\n -- $words[2..-1] | string collect)
    for line in (command mcp-workbench 2>/dev/null </dev/null)
        set -l parts (string split \\t -- $line)
        switch $parts[1]
            case file
                __fish_complete_path (commandline -ct)
            case dir
                __fish_complete_directories (commandline -ct)
            case '*'
                printf '%s\\t%s\\n' $parts[2] $parts[3]
        end
    end
end
complete --no-files --keep-order --command mcp-workbench --arguments '(_mcp_workbench)'
"""
__all__ = ["ASKED", "SCRIPTS"]

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
