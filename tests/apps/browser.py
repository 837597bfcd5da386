"""A browser without JavaScript: cookies, redirects, pages as trees, forms filled in and sent as they stand in the page.

It sends what the page's form holds, hidden fields included, so a CSRF token is only right if the server put it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO
from urllib.parse import urljoin

import lxml.html
import requests

#: Seconds; a server that answers later has failed.
TIMEOUT = 60

#: File name, content, media type.
Upload = tuple[str, bytes | IO[bytes], str]


class Page:
    """An answer, with its body as a tree when it is HTML."""

    def __init__(self, browser: Browser, response: requests.Response) -> None:
        self.browser = browser
        self.response = response
        self.status = response.status_code
        self.url = response.url

    @property
    def text(self) -> str:
        return self.response.text

    @property
    def path(self) -> str:
        """The path that the last redirect led to, with its query."""
        return self.url.removeprefix(self.browser.base) or "/"

    @property
    def tree(self) -> lxml.html.HtmlElement:
        return lxml.html.fromstring(self.text, base_url=self.url)

    def _expect_one(self, found: list, xpath: str) -> None:
        assert len(found) == 1, f"{len(found)} match {xpath} in {self.url} ({self.status}):\n{self.text[:3000]}"

    def all(self, xpath: str) -> list[str]:
        """The text of all elements that an XPath finds, surrounding space removed."""
        return [element.text_content().strip() for element in self.tree.xpath(xpath)]

    def one(self, xpath: str) -> str:
        """The text of the only element that an XPath finds. Raises AssertionError when there is none or more."""
        found = self.all(xpath)
        self._expect_one(found, xpath)
        return found[0]

    def value(self, xpath: str) -> str:
        """The only string that an XPath finds, such as an attribute: `//input[@name='token']/@value`."""
        found = self.tree.xpath(xpath)
        self._expect_one(found, xpath)
        return str(found[0])

    def link(self, xpath: str) -> str:
        """The address of the only link that an XPath finds."""
        found = self.tree.xpath(xpath)
        self._expect_one(found, xpath)
        return urljoin(self.url, found[0].get("href"))

    def follow(self, xpath: str) -> Page:
        """Clicks the only link that an XPath finds."""
        return self.browser.get(self.link(xpath))

    def submit(
        self,
        fields: Mapping[str, str] | None = None,
        *,
        form: str = "//form",
        files: Mapping[str, Upload] | None = None,
        redirects: bool = True,
    ) -> Page:
        """Fills in and sends the only form that an XPath finds; a field that the form does not have is an error."""
        found = self.tree.xpath(form)
        self._expect_one(found, form)
        element = found[0]
        names = list(element.inputs.keys())
        for name in [*(fields or {}), *(files or {})]:
            assert name in names, f"{self.url}: the form has no field {name!r}, but {names}"
        values = {name: value for name, value in element.form_values() if name not in (files or {})}
        values.update(fields or {})
        target = urljoin(self.url, element.action or self.url)
        if element.method == "GET":
            return self.browser.get(target, params=values, redirects=redirects)
        return self.browser.post(target, data=values, files=files, redirects=redirects)


class Browser:
    """One visitor: keeps cookies and its connection. `base` is the server's address without a slash at the end."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "Mozilla/5.0 (tests of Hayate)"

    def request(self, method: str, path: str, *, redirects: bool = True, **arguments: object) -> Page:
        """Any request; `path` may be an address too. Further arguments are those of the requests library."""
        arguments.setdefault("timeout", TIMEOUT)
        response = self.session.request(method, urljoin(self.base, path), allow_redirects=redirects, **arguments)
        return Page(self, response)

    def get(self, path: str, **arguments: object) -> Page:
        return self.request("GET", path, **arguments)

    def post(self, path: str, **arguments: object) -> Page:
        return self.request("POST", path, **arguments)

    def cookie(self, name: str) -> str | None:
        """A cookie's value, None when the visitor has none of that name."""
        return self.session.cookies.get(name)
