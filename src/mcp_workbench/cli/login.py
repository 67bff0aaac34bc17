"""`login` and `logout`: sign in to servers behind a URL, and sign out."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcp_workbench.cli.settings import (
    DONE,
    FAILED,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.sign_in_reports import NEEDS_LOGIN, describe, document
from mcp_workbench.cli.terminal import glyph, plain, say, say_json
from mcp_workbench.config.expand import Environment, Unexpandable, expand_target
from mcp_workbench.core.errors import InvalidCall, WorkbenchError, no_server, no_toolbox
from mcp_workbench.core.spec import SUBJECT, HttpEndpoint, ServerSpec, Snapshot, account_of
from mcp_workbench.timing import pause
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.protocol.oauth import SignInFailed
    from mcp_workbench.protocol.oauth_tokens import DeviceCode
    from mcp_workbench.upstream.oauth.sign_in import PendingSignIn, SignIn
    from mcp_workbench.upstream.oauth.store import Credential

T = TypeVar("T")

STARTED = pause(3.0)  # seconds after which a browser that still runs counts as opened
NO_BROWSER = (
    "No browser could be started here (WB-AUTH-009): open the address in one on this machine, or use --no-browser "
    "and paste the address that it ends at."
)
SCHEMES = ("https://", "http://")


class SignInError(WorkbenchError):
    """Signing in failed; `code` is one that `explain` knows."""

    def __init__(self, address: str, error: SignInFailed) -> None:
        super().__init__(f"{address}: {error}")
        self.code = error.code


@click.command()
@click.argument("names", metavar="[TOOLBOX/SERVER]...", nargs=-1)
@click.option(
    "--no-browser",
    is_flag=True,
    help="Print the address instead of opening it; the redirected address can be pasted back.",
    **variable("LOGIN_NO_BROWSER"),
)
@click.option(
    "--device",
    is_flag=True,
    help="Sign in with a code on another device, where the server offers it.",
    **variable("LOGIN_DEVICE"),
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="How long to wait for the person.",
    **variable("LOGIN_TIMEOUT"),
)
@click.option(
    "--principal",
    metavar="NAME",
    default="",
    help="Sign in for this person, at a server with `scope: principal`: the name of a token, or sub:SUBJECT.",
    **variable("LOGIN_PRINCIPAL"),
)
@global_options
@click.pass_obj
def login(  # noqa: PLR0913 - its options
    settings: Settings,
    *,
    names: tuple[str, ...],
    no_browser: bool,
    device: bool,
    timeout: float,
    principal: str,
) -> int:
    """Sign in to servers that want a login.

    Without a name: to all that need one. The sign-in is kept in your home folder, refreshed when it is about
    to end, and used by every workbench of yours.

    \b
    Examples:
      mcp-workbench login dev/github
      mcp-workbench login dev/github --no-browser
      mcp-workbench login
    """
    settings.open_log(reports_servers=True)
    snapshot = settings.snapshot()
    if principal:
        specs = _of_principal(snapshot, names, principal)
    else:
        specs = _named(snapshot, names) if names else _needing(settings, snapshot)
    if not specs:
        say("No server needs a login.", err=True)
        return DONE
    person = _Person(settings, browser=not no_browser, device=device, seconds=timeout)
    done = [_run(spec, person.sign_in(spec, snapshot)) for spec in specs]
    if settings.json:
        say_json([document(s.address, c) for s, c in zip(specs, done, strict=True)])
    return DONE


@click.command()
@click.argument("names", metavar="TOOLBOX/SERVER...", nargs=-1, required=True)
@click.option(
    "--principal",
    metavar="NAME",
    default="",
    help="Forget the sign-in of this person, at a server with `scope: principal`.",
    **variable("LOGOUT_PRINCIPAL"),
)
@global_options
@click.pass_obj
def logout(settings: Settings, *, names: tuple[str, ...], principal: str) -> int:
    """Forget the sign-in at servers, and revoke it where the server offers that.

    \b
    Example:
      mcp-workbench logout dev/github
    """
    settings.open_log()
    snapshot = settings.snapshot()
    specs = _of_principal(snapshot, names, principal) if principal else _named(snapshot, names)
    return max([_run(spec, _forget(spec, snapshot)) for spec in specs])


def _run(spec: ServerSpec, work: Coroutine[Any, Any, T]) -> T:
    """Run this; a failure is reported with the name of the server. Ctrl-C ends it at once."""
    from mcp_workbench.app import run_interruptible  # the event loop: not for completion
    from mcp_workbench.protocol.oauth import SignInFailed

    try:
        return run_interruptible(work)
    except SignInFailed as error:
        raise SignInError(str(spec.address), error) from None


# Which servers


def _named(snapshot: Snapshot, names: tuple[str, ...]) -> list[ServerSpec]:
    return [_spec(snapshot, name) for name in names]


def _of_principal(snapshot: Snapshot, names: tuple[str, ...], principal: str) -> list[ServerSpec]:
    """The servers as this principal uses them. Raises InvalidCall."""
    http = snapshot.http
    issuer = "" if http.auth is None else http.auth.issuer
    specs = _named(snapshot, names)
    shared = [str(spec.address) for spec in specs if spec.scope != "principal"]
    if not names or shared:
        which = ", ".join(shared) or "TOOLBOX/SERVER is missing"
        raise InvalidCall(f'--principal needs servers with "scope": "principal": {plain(which)}')
    known = [token.name for token in http.tokens]
    is_subject = bool(issuer) and principal.startswith(SUBJECT)
    if not (principal in known or is_subject or principal.startswith("#")):
        hint = f"tokens of the file: {', '.join(known) or 'none'}; people of an issuer: sub:SUBJECT"
        raise InvalidCall(f"there is no principal '{plain(principal)}'", hint=hint)
    account = account_of(principal.removesuffix(f"@{issuer}") if issuer else principal, issuer)
    return [spec.for_principal(account) for spec in specs]


def _spec(snapshot: Snapshot, name: str) -> ServerSpec:
    toolbox, slash, server = name.partition("/")
    if not slash:
        raise InvalidCall(
            f"'{plain(name)}' is not of the form TOOLBOX/SERVER",
            hint="mcp-workbench list shows them",
        )
    if toolbox not in snapshot.toolboxes:
        raise no_toolbox(toolbox, list(snapshot.toolboxes))
    servers = snapshot.toolboxes[toolbox].servers
    if server not in servers:
        raise no_server(server, toolbox, list(servers))
    if not isinstance(servers[server].target, HttpEndpoint):
        raise InvalidCall(f"{name} is a command, and only servers behind a URL have a login")
    return servers[server]


def _needing(settings: Settings, snapshot: Snapshot) -> list[ServerSpec]:
    """The servers that refuse us now, found by connecting to those behind a URL."""
    from mcp_workbench.cli.servers import survey

    specs = [s for box in snapshot.toolboxes.values() for s in box.servers.values()]
    remote = [spec for spec in specs if isinstance(spec.target, HttpEndpoint)]
    reports = survey(settings, snapshot, [spec.address for spec in remote]) if remote else []
    wanting = {report.address for report in reports if report.reason.startswith(NEEDS_LOGIN)}
    return [spec for spec in remote if spec.address in wanting]


async def expanded(spec: ServerSpec, environ: Mapping[str, str]) -> HttpEndpoint:
    """The entry with the current values. Raises InvalidCall."""
    values = Environment(environ)
    try:
        await values.prepare(spec)
        target = expand_target(spec, values)
    except Unexpandable as error:
        raise InvalidCall(f"{spec.address}: {error.message}") from None
    if not isinstance(target, HttpEndpoint):
        raise InvalidCall(f"{spec.address} has no URL")
    return target


# The person


class _Person:
    """Whoever runs the command."""

    def __init__(self, settings: Settings, *, browser: bool, device: bool, seconds: float) -> None:
        self._settings = settings
        self._browser = browser
        self._device = device
        self._seconds = seconds

    async def sign_in(self, spec: ServerSpec, snapshot: Snapshot) -> Credential:
        from mcp_workbench.upstream.oauth.sign_in import SignIn

        environ = os.environ
        sign_in = SignIn(await expanded(spec, environ), environ, spec.principal)
        self._note(f"{spec.address}: asking the server how to sign in …")
        try:
            if sign_in.settings.grant == "client_credentials":
                credential = await sign_in.for_machine()
            elif self._device:
                credential = await sign_in.by_device(self._show_code, self._seconds)
            else:
                credential = await self._with_browser(sign_in)
        finally:
            if sign_in.clock_warning:
                self._say(sign_in.clock_warning)
        if snapshot.cluster is not None:
            from mcp_workbench.cli.cluster_sign_ins import share_sign_in  # few have one

            await share_sign_in(snapshot, sign_in.store.name, credential)
        if not self._settings.json:
            say(f"{glyph('good')} {spec.address}: {describe(document(spec.address, credential))}")
        return credential

    async def _with_browser(self, sign_in: SignIn) -> Credential:
        async with sign_in.open() as pending:
            what = f"Sign in at {plain(pending.issuer)} with this address"
            self._say(f"{what}:\n\n  {pending.url}\n")
            return await self._wait(pending)

    async def _wait(self, pending: PendingSignIn) -> Credential:
        pastes = not self._browser and stdin_is_terminal() and not self._settings.no_input
        if pastes:
            self._say("If the browser runs elsewhere: paste the address that it ends at, here.")
        async with task_scope() as scope:
            tasks = [scope.start(_outcome(pending.done(self._seconds)), "redirect")]
            if self._browser:
                scope.start(self._show_address(pending.url), "browser")
            if pastes:
                tasks.append(scope.start(_outcome(_pasted(pending)), "paste"))
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            outcome = finished.pop().result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _show_address(self, url: str) -> None:
        if not await open_browser(url, os.environ):
            self._say(NO_BROWSER)

    def _show_code(self, code: DeviceCode) -> None:
        address = code.verification_uri_complete or code.verification_uri
        self._say(f"Open {address} on any device, and enter the code {plain(code.user_code)}")

    def _note(self, text: str) -> None:
        if self._settings.talkative:
            say(text, err=True)

    def _say(self, text: str) -> None:
        say(text, err=True)  # without it nobody can sign in, whatever is quiet


async def _outcome(work: Awaitable[Credential]) -> Credential | SignInFailed:
    from mcp_workbench.protocol.oauth import SignInFailed

    try:
        return await work
    except SignInFailed as error:
        return error


async def _pasted(pending: PendingSignIn) -> Credential:
    """Read addresses from the terminal until one completes the sign-in."""
    from mcp_workbench.protocol.oauth import SignInFailed

    while True:
        line = await _line()
        _, mark, query = line.strip().partition("?")
        if not mark:
            say("That has no '?': paste the whole address.", err=True)
            continue
        try:
            return await pending.complete(query)
        except SignInFailed as error:
            if error.code != "WB-AUTH-006":
                raise
            say(str(error), err=True)


async def _line() -> str:
    """One line of stdin, without a thread that would keep the program from ending."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.readline()
    if not line:
        await asyncio.Event().wait()  # the end of input: only the browser can complete it now
    return line


# Browsers


def browser_commands(environ: Mapping[str, str], platform: str) -> list[list[str]]:
    """The commands that show an address, best first; `%s` stands for it."""
    own = [_words(text) for text in environ.get("BROWSER", "").split(os.pathsep) if text.strip()]
    if own:
        return [command if "%s" in command else [*command, "%s"] for command in own]
    if platform == "darwin":
        return [["open", "%s"]]
    if environ.get("WSL_DISTRO_NAME"):
        return [["wslview", "%s"]]
    if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        return [["xdg-open", "%s"], ["x-www-browser", "%s"], ["firefox", "%s"]]
    return []  # a browser without a window would take over this terminal


def _words(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command)
    except ValueError:  # a quotation mark that is alone
        return [command]


async def open_browser(url: str, environ: Mapping[str, str]) -> bool:
    """Show an address to the person. Only for commands that the person runs: nothing else may open one.

    No shell is involved, and nothing but an address of the web is ever passed on.
    """
    if not url.startswith(SCHEMES):
        return False
    for command in browser_commands(environ, sys.platform):
        try:
            process = await asyncio.create_subprocess_exec(
                *(url if word == "%s" else word for word in command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            continue
        try:
            async with asyncio.timeout(STARTED):
                status = await process.wait()
        except TimeoutError:
            return True
        if status == 0:
            return True
    return False


# Forgetting


async def _forget(spec: ServerSpec, snapshot: Snapshot) -> int:
    from mcp_workbench.protocol import oauth
    from mcp_workbench.upstream.oauth.sign_in import FORM, outgoing_of, store_of, token_request

    target = await expanded(spec, os.environ)
    store = store_of(target, os.environ, spec.principal)
    async with store.locked():
        credential = store.read()
        store.delete()
    if credential is None:
        say(f"{spec.address}: nobody is signed in", err=True)
        return FAILED
    if snapshot.cluster is not None:
        from mcp_workbench.cli.cluster_sign_ins import share_sign_in, signed_out  # few have one

        await share_sign_in(snapshot, store.name, signed_out(credential))
    revoked = ""
    token = credential.refresh_token or credential.access_token
    if credential.revocation_endpoint and token:
        try:
            headers, body = await token_request(
                target.auth, credential.client, credential.issuer, {"token": token}
            )
            reply = await outgoing_of(target, os.environ).post(
                credential.revocation_endpoint, headers, body, FORM
            )
            revoked = ", and its tokens were revoked" if reply.ok else ""
        except oauth.SignInFailed:
            revoked = ""
    say(f"{glyph('good')} {spec.address}: signed out{revoked}")
    return DONE
