"""Dashboard: the ASGI application of the pages, their files, their live changes, and sign-in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from holdfast.views.browser import VISITOR, NotAnswered, Visitor
from holdfast.web.files import StaticFiles
from holdfast.web.page_kinds import ADMIN, WRITE, Action, ActionDone, Page
from holdfast.web.words import in_plain_words

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("holdfast")

BELOW = "/dashboard"
_MAX_FIELDS = 100
# Nothing from elsewhere, no inline script or style, no frame, no form to another place.
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Dashboard:
    """Answers every request at / and below /dashboard. The first one loads pages and templates, so that a
    gateway starts without them."""

    def __init__(self) -> None:
        self._loading = asyncio.Lock()
        self._pages: _Pages | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._pages is None:
            async with self._loading:
                if self._pages is None:
                    # In a thread: the imports take as long as many requests.
                    self._pages = await asyncio.to_thread(_Pages)
        await self._pages(scope, receive, send)


class _Pages:
    """The pages with their files, templates and actions."""

    def __init__(self) -> None:
        from holdfast.web.rendering import Renderer
        from holdfast.web.tables import ACTIONS, PAGES

        self._files = StaticFiles()
        self._renderer = Renderer(self._files)
        self._actions = {action.name: action for action in ACTIONS}
        pages = [
            Route(page.path if page.path == "/" else BELOW + page.path, self._page(page), methods=["GET"])
            for page in PAGES
        ]
        self._router = Router(
            routes=[
                Route(BELOW + "/static/{path:path}", self._static, methods=["GET"]),
                Route(BELOW + "/sign-in", self._sign_in_page, methods=["GET"]),
                Route(BELOW + "/sign-in", self._sign_in, methods=["POST"]),
                Route(BELOW + "/sign-out", self._sign_out, methods=["POST"]),
                Route(BELOW + "/session", self._session, methods=["GET"]),
                Route(BELOW + "/live", self._live, methods=["GET"]),
                Route(BELOW + "/ask/{action}", self._ask, methods=["GET"]),
                Route(BELOW + "/do/{action}", self._act, methods=["POST"]),
                Route(BELOW, self._home, methods=["GET"]),
                *pages,
            ],
            redirect_slashes=False,
            default=self._nowhere,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # --- pages

    def _page(self, page: Page) -> Any:
        async def show(request: Request) -> Response:
            visitor = _visitor(request)
            if not visitor.is_signed_in:
                return _to_sign_in(request)
            query = Fields({**request.query_params, **request.path_params})
            try:
                found = await page.load(visitor, query)
                return self._html(request, page.template, page=page, visitor=visitor, query=query, **found)
            except NotAnswered as refused:
                return self._refused(request, page, visitor, refused)
            except Exception:
                # The outermost handler of a page: log what went wrong, and hide its details from the browser.
                log.exception("the page %s failed", page.path)
                failed = NotAnswered("internal", "this page failed; see the gateway's log", status=500)
                return self._refused(request, page, visitor, failed)

        return show

    def _refused(self, request: Request, page: Page, visitor: Visitor, refused: NotAnswered) -> Response:
        return self._html(
            request,
            "refused.html",
            status=refused.status,
            page=page,
            visitor=visitor,
            query={},
            refused=refused,
        )

    def _html(self, request: Request, template: str, *, status: int = 200, **found: Any) -> Response:
        text = self._renderer.render(template, path=_place_of(request), **found)
        return Response(text, status_code=status, headers=PAGE_HEADERS, media_type="text/html")

    async def _home(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        return RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER)

    async def _static(self, request: Request) -> Response:
        found = self._files.find(request.path_params["path"])
        if found is None:
            return Response("no such file", status_code=HTTPStatus.NOT_FOUND, media_type="text/plain")
        return Response(found.content, headers=found.headers(request.query_params.get("v")))

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        visitor = _visitor(request)
        if not visitor.is_signed_in:
            response: Response = _to_sign_in(request)
        else:
            refused = NotAnswered(
                "not_found", f"there is no page {scope['path']}", status=HTTPStatus.NOT_FOUND
            )
            response = self._refused(request, _NOWHERE, visitor, refused)
        await response(scope, receive, send)

    # --- sign-in

    async def _sign_in_page(self, request: Request) -> Response:
        return self._html(request, "sign-in.html", visitor=_visitor(request))

    async def _sign_in(self, request: Request) -> Response:
        try:
            form = await _form(request)
            cookie = await _visitor(request).sign_in(
                code=form.get("code", "").strip(), token=form.get("token", "").strip()
            )
        except NotAnswered as refused:
            return _said({"error": str(refused), "code": refused.code}, status=refused.status)
        return _said({"signedIn": True}, headers={"set-cookie": cookie})

    async def _sign_out(self, request: Request) -> Response:
        try:
            cookie = await _visitor(request).sign_out()
        except NotAnswered as refused:
            return _said({"error": str(refused), "code": refused.code}, status=refused.status)
        headers = {"set-cookie": cookie, "hx-redirect": BELOW + "/sign-in"}
        return _said({"signedIn": False}, headers=headers)

    async def _session(self, request: Request) -> Response:
        """Whether the browser is signed in: 200 or 401."""
        if not _visitor(request).is_signed_in:
            return _said({"error": "sign in first"}, status=HTTPStatus.UNAUTHORIZED)
        return _said({"signedIn": True})

    # --- live

    async def _live(self, request: Request) -> Response:
        visitor = _visitor(request)
        if not visitor.is_signed_in:
            return _said({"error": "sign in first"}, status=HTTPStatus.UNAUTHORIZED)
        if request.method == "HEAD":  # no body, and the stream never ends; a page asks whether there is room
            try:
                visitor.check_live()
            except NotAnswered as refused:
                return _refused_live(refused)
            return Response(media_type="text/event-stream")
        return _LiveResponse(visitor)

    # --- actions

    async def _ask(self, request: Request) -> Response:
        visitor, action = _visitor(request), self._actions.get(request.path_params["action"])
        refused = _why_not(visitor, action)
        if refused is None and action is not None:
            try:
                confirmation = await action.ask(visitor, Fields(request.query_params))
                return self._html(
                    request,
                    "parts/dialog.html",
                    visitor=visitor,
                    action=action,
                    confirmation=confirmation,
                    given=dict(request.query_params),
                )
            except NotAnswered as error:
                refused = error
        return self._html(request, "parts/dialog-refused.html", visitor=visitor, refused=refused)

    async def _act(self, request: Request) -> Response:
        visitor, action = _visitor(request), self._actions.get(request.path_params["action"])
        refused = _why_not(visitor, action)
        if refused is None and action is not None:
            try:
                done = await action.act(visitor, await _form(request))
            except NotAnswered as error:
                refused = error
            else:
                told = done if isinstance(done, ActionDone) else ActionDone(text=done)
                return _said({"done": told.text, "link": told.link, "href": told.href})
        assert refused is not None
        return _said({"error": in_plain_words(str(refused)), "code": refused.code}, status=refused.status)


async def _no_page(visitor: Visitor, query: object) -> dict[str, Any]:  # noqa: ARG001 - as every page has it
    return {}


_NOWHERE = Page(path="", title="No such page", template="refused.html", load=_no_page)


def _visitor(request: Request) -> Visitor:
    visitor: Visitor = request.scope[VISITOR]
    return visitor


def _why_not(visitor: Visitor, action: Action | None) -> NotAnswered | None:
    if not visitor.is_signed_in:
        return NotAnswered("signed_out", "you are signed out: sign in again", status=HTTPStatus.UNAUTHORIZED)
    if action is None:
        return NotAnswered("not_found", "there is no such action", status=HTTPStatus.NOT_FOUND)
    may = {WRITE: visitor.may_change, ADMIN: visitor.may_administer}
    if not may.get(action.needs, True):
        why = f"you signed in as {visitor.who}, whose token may not do this: it needs operator.{action.needs}"
        return NotAnswered("forbidden", why, status=HTTPStatus.FORBIDDEN)
    return None


class Fields(dict[str, str]):
    """What a browser sent. A field that it left out is refused: its pages send all that they need."""

    def __missing__(self, name: str) -> str:
        raise NotAnswered("bad_input", f"the field “{name}” is missing", status=HTTPStatus.BAD_REQUEST)


async def _form(request: Request) -> Fields:
    """The fields of a form; of equal names the last one counts."""
    try:
        return Fields(
            parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        )
    except ValueError as error:
        raise NotAnswered("bad_input", "this form cannot be read", status=HTTPStatus.BAD_REQUEST) from error


def _to_sign_in(request: Request) -> Response:
    there = BELOW + "/sign-in?" + urlencode({"next": _place_of(request)})
    if "hx-request" in request.headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"hx-redirect": there})
    return RedirectResponse(there, status_code=HTTPStatus.SEE_OTHER)


def _place_of(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


class _LiveResponse(Response):
    """Changes as they happen, or the refusal if too many pages are live. The stream is held by the answer
    itself, so that it is given back however the connection ends."""

    def __init__(self, visitor: Visitor) -> None:
        super().__init__()
        self._visitor = visitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._visitor.live())
            except NotAnswered as refused:
                response = _refused_live(refused)
            else:
                response = StreamingResponse(_changes(self._visitor), media_type="text/event-stream")
            await response(scope, receive, send)


def _refused_live(refused: NotAnswered) -> Response:
    headers = {} if refused.retry_after_s is None else {"retry-after": str(refused.retry_after_s)}
    return _said({"error": str(refused), "code": refused.code}, status=refused.status, headers=headers)


async def _changes(visitor: Visitor) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async for change in visitor.changes():
        if change is None:
            yield b"event: alive\ndata: {}\n\n"
        else:
            yield b"data: " + msgspec.json.encode(change) + b"\n\n"
    # The sign-in is over, or the gateway stops: the page asks again, and finds out which.
    yield b"event: bye\ndata: {}\n\n"


def _said(payload: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(payload),
        status_code=status,
        headers=PAGE_HEADERS | (headers or {}),
        media_type="application/json",
    )
