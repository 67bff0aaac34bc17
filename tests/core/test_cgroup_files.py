"""Where our control group is, and what the groups of servers have to say."""

import pytest

from mcp_workbench.core.cgroup_files import all_ours, left, needed, own_folder, settings
from mcp_workbench.core.spec import ResourceLimits

UNIFIED = "24 18 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
HYBRID = "31 30 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
NAMESPACE = "24 18 0:22 /pod/one /sys/fs/my\\040groups rw - cgroup2 cgroup2 rw"
OTHER = "40 18 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("groups", "mounts", "folder"),
    [
        ("0::/user.slice/a.scope\n", UNIFIED, "/sys/fs/cgroup/user.slice/a.scope"),
        ("4:memory:/x\n0::/\n", f"{OTHER}\n{HYBRID}", "/sys/fs/cgroup/unified"),
        ("0::/pod/one/two\n", NAMESPACE, "/sys/fs/my groups/two"),
        ("0::/pod/one\n", NAMESPACE, "/sys/fs/my groups"),
        ("0::/pod/oneself\n", NAMESPACE, ""),  # not below what is mounted
        ("0::/../other\n", UNIFIED, ""),  # outside of the namespace
        ("4:memory:/x\n", UNIFIED, ""),  # no cgroup v2
        ("0::/a\n", OTHER, ""),
        ("", "", ""),
        ("0::/a\n", "x - cgroup2\nnothing", ""),
    ],
)
def test_our_group_is_found_where_it_is_mounted(groups: str, mounts: str, folder: str) -> None:
    assert own_folder(groups, mounts) == folder


def test_what_a_group_can_hold_is_not_left_to_the_processes() -> None:
    limits = ResourceLimits(memory_bytes=1000, processes=5, open_files=7)

    assert needed(limits) == ("memory", "pids")
    assert needed(ResourceLimits(open_files=7)) == ()
    assert settings(limits, ("pids",)) == {"pids.max": "5"}
    assert left(limits, ("pids",)) == ResourceLimits(memory_bytes=1000, open_files=7)
    assert settings(limits, ("memory", "pids")) == {
        "memory.max": "1000",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "5",
    }
    assert left(limits, ("memory", "pids")) == ResourceLimits(open_files=7)
    assert settings(ResourceLimits(), ("memory", "pids")) == {}


def test_a_group_is_ours_if_all_in_it_descend_from_us() -> None:
    parents = {10: 1, 11: 10, 12: 11, 20: 1, 30: 31, 31: 30}

    assert all_ours([10, 11, 12], parents, 10)
    assert all_ours([], parents, 10)
    assert not all_ours([10, 20], parents, 10)
    assert not all_ours([1], parents, 10)
    assert not all_ours([99], parents, 10)  # it ended meanwhile
    assert not all_ours([30], parents, 10)  # numbers that were used again
