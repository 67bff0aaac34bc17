"""A person before a browser who opens a sign-in page of the workbench."""

from __future__ import annotations

from urllib.parse import urljoin

from tests.kit.authorization_server.person import Browser, Page, sign_in


def begin(link: str, proof: str, browser: Browser) -> str:
    """Prove who one is on the page; where does it lead to? Raises NotSignedIn for a page that refuses."""
    _, text = browser.load(link)
    page = Page(text)
    assert page.action is not None, text
    _, text = browser.load(urljoin(link, page.action), {**page.fields, "proof": proof})
    [target] = Page(text).links
    return target


def connect(link: str, proof: str, login: str) -> str:
    """Do all that the page asks for, and sign in as this login; the text of the last page is returned."""
    browser = Browser()
    back = sign_in(begin(link, proof, browser), login, follow=False, browser=browser)
    _, text = browser.load(back)
    return text
