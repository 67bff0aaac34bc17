"""How many scripts may run at once, and how many of them for one principal."""

from collections.abc import Mapping

MOST_SCRIPTS = 64  # at once; each may use as much memory as its limit says


def may_start(running: Mapping[str, int], principal: str) -> bool:
    """Whether another script of this principal may start; `running` is how many each has now.

    One principal has at most half of the slots, and the last quarter is for those that have none. Hosts without a token
    are all one principal, which shares with nobody.
    """
    free = MOST_SCRIPTS - sum(running.values())
    mine = running.get(principal, 0)
    if not principal or not mine:
        return free > 0
    return mine < MOST_SCRIPTS // 2 and free > MOST_SCRIPTS // 4


def refusal_text(running: Mapping[str, int], principal: str) -> str:
    """Why a script was not started."""
    mine, total = running.get(principal, 0), sum(running.values())
    if total >= MOST_SCRIPTS or not principal:
        return f"{MOST_SCRIPTS} scripts are running"
    return f"{total} scripts are running, {mine} of them yours; the other slots are for others"
