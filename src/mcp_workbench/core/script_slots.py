"""How many scripts may run at once, and how many of them for one principal."""

from collections.abc import Mapping

MOST_SCRIPTS = 64  # at once; each may use as much memory as its limit says


def may_start(running: Mapping[str, int], principal: str) -> bool:
    """Whether another script of this principal may start; `running` is how many each has now.

    A principal may have as many as there are free slots: one alone gets half of them, two get a third each, and what
    they leave is there for the next. Hosts without a token are all one principal, which shares with nobody.
    """
    free = MOST_SCRIPTS - sum(running.values())
    if free <= 0:
        return False
    mine = running.get(principal, 0)
    return mine < free or not principal


def refusal_text(running: Mapping[str, int], principal: str) -> str:
    """Why a script was not started."""
    if sum(running.values()) >= MOST_SCRIPTS or not principal:
        return f"{MOST_SCRIPTS} scripts are running"
    return f"{running.get(principal, 0)} of your scripts are running, and the other slots are kept for others"
