"""The browser of a person who signs in at `sign_in_server`, which has no pages: it is sent back at once.

    python -E -S visitor.py URL

`browser` in `sign_in_server.py` is the environment of a command that starts it. It is started for each
sign-in, and nothing is loaded for it that the interpreter has not loaded already.
"""

# pyright: basic
import _socket
import sys

SECONDS = 20.0  # for each of the two pages


def visit(url: str) -> str:
    """The address that the browser is sent to from this one, if it is."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    server = _socket.socket()
    server.settimeout(SECONDS)
    server.connect((name, int(port)))
    server.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = b""
    while data := server.recv(1 << 16):
        answer += data
    server.close()
    status, *headers = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    if int(status.split()[1]) >= 400:
        sys.exit(f"{status} at /{path.partition('?')[0]}")
    named = [line.partition(": ") for line in headers]
    return next((value for name, _, value in named if name == "Location"), "")


if __name__ == "__main__":
    visit(visit(sys.argv[1]))
