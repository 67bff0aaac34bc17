"""One legacy host over HTTP: every message for it goes to exactly one of its streams."""

from __future__ import annotations

from mcp_workbench.era.revision import NEWEST_LEGACY
from mcp_workbench.surface.endpoint import Endpoint
from mcp_workbench.surface.http_refusals import refused
from mcp_workbench.surface.http_streams import EventStream, PostStream
from mcp_workbench.surface.parse import Message, UseToolRequest, cancelled_id
from mcp_workbench.wire import envelope
from mcp_workbench.wire.http_message import Reply
from mcp_workbench.wire.http_response import Response

IDLE = 1800.0  # seconds without a request or a stream until a session ends
KEPT = 60.0  # seconds that the end of a broken stream waits for its host
KEPT_STREAMS = 16  # per session; an older one is forgotten
_CANCELLED = "notifications/cancelled"
SILENCE = 5.0  # seconds until a host that waits sees a stream begin


class LegacySession:
    """One host. It is the channel of its conversation: a frame goes to the POST that it is about."""

    backlog = 0

    def __init__(self, id: str, principal: str, endpoint: Endpoint, now: float) -> None:
        self.id = id
        self.principal = principal
        self.endpoint = endpoint
        self.now = self.touched = now
        self._standalone: EventStream | None = None
        self._posts: dict[bytes, PostStream] = {}  # by the request that waits there
        self._ended: dict[int, PostStream] = {}  # whose host may still come back for the end
        self._streams = 0
        self.host = endpoint.session(self)

    @property
    def revision(self) -> str:
        return self.host.era.revision

    @property
    def busy(self) -> bool:
        return bool(self._posts)

    # Out

    def send(self, frame: bytes, about: bytes = b"") -> None:
        post = self._posts.get(about) if about else None
        if post is None:
            if not (about and envelope.answers(frame, about)):  # nobody waits for that answer
                self.standalone.send(frame)
        elif envelope.answers(frame, about):
            del self._posts[about]
            if post.headers and envelope.is_refusal(frame, about):
                post.headers = b""  # no session came of it
            post.answer(about, frame)
            self._keep(post)
        else:
            post.notice(frame)

    @property
    def standalone(self) -> EventStream:
        """The stream of what belongs to no request."""
        if self._standalone is None:
            self._standalone = EventStream(0, primes=self._primes)
        return self._standalone

    @property
    def _primes(self) -> bool:
        return self.revision == NEWEST_LEGACY

    def _keep(self, post: PostStream) -> None:
        if post.complete and post.resumable:
            post.over = self.now
            self._ended[post.number] = post
            if len(self._ended) > KEPT_STREAMS:
                del self._ended[next(iter(self._ended))]

    # In

    def uses(self, id: bytes) -> bool:
        return id in self._posts

    def post(
        self, response: Response, messages: list[Message], ids: list[bytes], *, batch: bool = False
    ) -> None:
        """Messages of one POST; `ids` are those of its requests, which may all be taken."""
        if ids:
            self._streams += 1
            post = PostStream(self._streams, response, ids, self.now, primes=self._primes)
            post.batch = batch
            for id in ids:
                self._posts[id] = post
            if messages[0].method == "initialize":
                post.headers = b"Mcp-Session-Id: %b\r\n" % self.id.encode()
        else:
            response.plain(Reply(202))
        for message in messages:
            self.host.receive(message)
            if not isinstance(message, UseToolRequest) and message.method == _CANCELLED:
                self._taken_back(cancelled_id(message.params))

    def _taken_back(self, id: bytes) -> None:
        post = self._posts.pop(id, None)
        if post is not None:
            post.settle(id)
            self._keep(post)

    def listen(self, response: Response, last: bytes) -> None:
        """A GET: the standalone stream, or one that broke and goes on behind the event `last`."""
        number, _, count = last.partition(b"-")
        if not last or int(number) == 0:
            self.standalone.attach(response, int(count) if last else None)
            return
        stream = self._resumed(int(number))
        if stream is None:
            response.plain(refused(400, "this stream is not kept any more"))
            return
        stream.attach(response, int(count))
        if stream.complete:
            stream.end()

    def _resumed(self, number: int) -> PostStream | None:
        for post in self._posts.values():
            if post.number == number and post.resumable:
                return post
        return self._ended.get(number)

    # Time

    def tick(self, now: float, *, comment: bool) -> None:
        self.now = now
        for post in set(self._posts.values()):
            if now - post.since >= SILENCE:
                post.commit_late()
        for number, post in tuple(self._ended.items()):
            if now - post.over > KEPT:
                del self._ended[number]
        if self._standalone is not None and self._standalone.response is not None:
            self.touched = now
        if comment:
            self._comment()

    def _comment(self) -> None:
        for post in set(self._posts.values()):
            post.comment()
        if self._standalone is not None:
            self._standalone.comment()

    def expired(self, now: float) -> bool:
        return not self._posts and now - self.touched > IDLE

    def stop_listening(self) -> None:
        if self._standalone is not None:
            self._standalone.end()

    def close(self) -> None:
        """The conversation is over: what is under way is taken back, every stream ends."""
        self.host.close()
        self.stop_listening()
        posts = set(self._posts.values())
        self._posts.clear()
        for post in posts:
            post.abandon()
