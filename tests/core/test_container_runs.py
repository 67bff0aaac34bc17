"""Launch lines that run a container get a label, and every other line stays as it is."""

import pytest

from mcp_workbench.core.container_runs import client_environment, container_run

LABEL = "mcp-workbench.server=1"


@pytest.mark.parametrize(
    ("line", "labelled"),
    [
        ("docker run -i image", "docker run --label LABEL -i image"),
        ("/usr/bin/podman run image run", "/usr/bin/podman run --label LABEL image run"),
        ("podman container run image", "podman container run --label LABEL image"),
        ("podman-remote run image", "podman-remote run --label LABEL image"),
        ("docker run --label a=b image", "docker run --label LABEL --label a=b image"),
        ("podman --root /a run image", "podman --root /a run --label LABEL image"),
        ("podman --root=/a --syslog run x", "podman --root=/a --syslog run --label LABEL x"),
        ("docker -H run run image", "docker -H run run --label LABEL image"),
        ("docker run", "docker run --label LABEL"),
    ],
)
def test_a_container_gets_a_label(line: str, labelled: str) -> None:
    run = container_run(tuple(line.split()))

    assert run is not None
    assert " ".join(run.argv(LABEL)) == labelled.replace("LABEL", LABEL)


@pytest.mark.parametrize(
    "line",
    [
        "docker",
        "docker --debug",
        "docker -H",
        "docker exec -i a run",
        "docker compose run a",
        "docker start -ai a",
        "podman --new-option value run image",
        "podman container",
        "podman container exec a run",
        "sudo docker run image",
        "sh -c docker run image",
        "my-docker run image",
        "docker-compose run a",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert container_run(tuple(line.split())) is None


def test_the_options_of_the_client_find_the_container_again() -> None:
    run = container_run(("podman", "--root", "/a", "run", "-e", "TOKEN=canary", "image"))
    assert run is not None

    container = run.labelled(LABEL, {"HOME": "/h", "TOKEN": "canary"}, "/here")

    assert container.client == ("podman", "--root", "/a")
    assert container.env == {"HOME": "/h"}
    assert container.cwd == "/here"
    assert container.label == LABEL


def test_a_client_gets_what_names_its_engine_and_nothing_of_the_server() -> None:
    ours = "PATH HOME XDG_RUNTIME_DIR DOCKER_HOST DOCKER_CONTEXT CONTAINER_HOST CONTAINERS_CONF "
    ours += "CONTAINERS_STORAGE_CONF STORAGE_DRIVER"
    theirs = "API_KEY DOCKER_AUTH_CONFIG DOCKER_PASSWORD MY_DOCKER_HOST PATHS LD_PRELOAD"

    env = client_environment(dict.fromkeys(f"{ours} {theirs}".split(), "x"))

    assert sorted(env) == sorted(ours.split())


def test_what_is_shown_of_them_holds_no_argument() -> None:
    run = container_run(("docker", "run", "-e", "TOKEN=canary", "image"))
    assert run is not None

    assert "canary" not in repr(run)
    assert "canary" not in repr(run.labelled(LABEL, {"HOME": "canary"}, "canary"))
