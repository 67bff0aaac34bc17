#!/usr/bin/env python3
"""A person before a browser: signs in at the login page, consents, and is sent back.

It is also a command, so that the variable BROWSER can name it: person.py URL. The variables PERSON (a login, else
alice) and PERSON_DENIES say who signs in, and whether consent is refused. It needs the standard library alone.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.client import HTTPMessage, HTTPResponse
from http.cookiejar import CookieJar
from typing import IO, Any
from urllib.parse import urlencode, urljoin, urlsplit

PAGES = 12  # at most, with all redirects between them
SECONDS = 20.0  # for each


class NotSignedIn(Exception):
    """The pages led nowhere."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class Page(HTMLParser):
    """The first form of a page, and the links of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None:
            self.action = values.get("action", "")
        elif tag == "input" and "name" in values:
            self.fields.setdefault(values["name"], values.get("value", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])


class Browser:
    """Keeps cookies, and follows no redirect by itself."""

    def __init__(self) -> None:
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        no_proxy = urllib.request.ProxyHandler({})
        self._opener = urllib.request.build_opener(_Stay(), cookies, no_proxy)

    def load(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Where a page leads to by itself, and its text."""
        data = None if form is None else urlencode(form).encode()
        response: Any
        try:
            response = self._opener.open(urllib.request.Request(url, data), timeout=SECONDS)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            text = response.read().decode("utf-8", "replace")
            if response.status >= 400:
                raise NotSignedIn(f"{response.status} at {urlsplit(url).path}: {text[:500]}")
            location = response.headers.get("location")
        return (urljoin(url, location) if location else "", text)


def sign_in(
    url: str,
    login: str = "alice",
    *,
    follow: bool = True,
    deny: bool = False,
    browser: Browser | None = None,
) -> str:
    """Go from this address to the redirect URI of the client, which is returned and, if `follow`, loaded.

    At the address of a device flow there is none: the last page is returned then.
    """
    browser = browser or Browser()
    home = urlsplit(url).netloc
    form: dict[str, str] | None = None
    for _ in range(PAGES):
        target, text = browser.load(url, form)
        form = None
        if target and urlsplit(target).netloc != home:
            if follow:
                _visit(target)
            return target
        if target:
            url = target
            continue
        page = Page(text)
        if page.action is None:
            return url
        url, form = _next(url, page, login, deny=deny)
    raise NotSignedIn(f"more than {PAGES} pages")


def _next(url: str, page: Page, login: str, *, deny: bool) -> tuple[str, dict[str, str] | None]:
    """What the person does with a page that has a form."""
    if deny and page.fields.get("prompt") == "consent":
        return urljoin(url, next(link for link in page.links if "abort" in link)), None
    if "login" in page.fields:
        page.fields |= {"login": login, "password": "any"}
    return urljoin(url, page.action), page.fields


def _visit(url: str) -> None:
    """Load the client's own page, redirects and all."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    response: HTTPResponse
    with opener.open(url, timeout=SECONDS) as response:
        response.read()


if __name__ == "__main__":
    sign_in(
        sys.argv[1],
        os.environ.get("PERSON", "alice"),
        deny=bool(os.environ.get("PERSON_DENIES")),
    )
