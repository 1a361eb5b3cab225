"""Who may ask the server for what: hostile requests are refused, and the server goes on."""

import json
import socket
import struct
import zlib

import numpy as np
import pytest
from asking import Client

from neurosql.errors import InputError
from neurosql.web.guard import Rules
from neurosql.web.serving import Serving
from neurosql.web.wire import asked, indices, numbers, packed, whole


def words(answer):
    return json.loads(answer[2])["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "127.0.0.1.evil.example:80", "0.0.0.0", "[::1]", ""])
def test_another_host_is_refused(client, host):
    answer = client("/api/runs/0", headers={"host": host})
    assert answer[0] == 421 and "answers for" in words(answer)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
@pytest.mark.parametrize("body", [None, {"codes": [[0, 0]]}])
def test_another_origin_is_refused(client, origin, body):
    answer = client("/api/runs/0/decode" if body else "/api/runs/0", body, {"origin": origin})
    assert answer[0] == 403 and "other sites" in words(answer)


def test_a_script_or_a_picture_on_another_site_gets_nothing_but_a_link_opens_the_page(client):
    there = {"sec-fetch-site": "cross-site"}
    assert client("/api/runs/0/points", headers=there)[0] == 403
    assert client("/api/runs/0", headers={"sec-fetch-site": "same-site"})[0] == 403
    assert client("/api/runs/0", headers=there | {"sec-fetch-mode": "navigate"})[0] == 403
    assert client("/", headers=there | {"sec-fetch-mode": "navigate"})[0] == 200
    own = {"origin": client.base, "sec-fetch-site": "same-origin"}
    assert client("/api/runs/0/decode", {"codes": [[0, 0]]}, own)[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_of_another_site_can_send_is_refused(client, kind):
    assert client("/api/runs/0/decode", {"codes": [[0, 0]]}, {"content-type": kind})[0] == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(client, method):
    assert client("/api/runs/0", method=method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        *("/../../pyproject.toml", "/..%2f..%2fpyproject.toml", "/%2e%2e/server.py", "/static/../server.py"),
        *(
            "//etc/passwd",
            "/config.json",
            "/api/runs/0/../../config.json",
            "/api/runs/-1",
            "/api/runs/1",
            "/api/runs/x",
        ),
        *(
            "/index.html%00.js",
            "/api/runs/0/model.safetensors",
            "/.hidden",
            "/source.js/",
            "/api/runs/99999999999999999999",
        ),
    ],
)
def test_nothing_else_of_the_disk_is_served(client, path):
    status, _, content = client(path)
    assert status == 404 and content[:1] == b"{"


def test_every_answer_forbids_scripts_and_frames_of_others(client):
    for path in ("/", "/plane.js", "/api/runs/0", "/nothing"):
        _, headers, _ = client(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin" and headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "what, body",
    [
        ("decode", b"{"),
        ("decode", b"[" * 100_000),
        ("decode", b"[1]"),
        ("decode", {}),
        ("decode", {"codes": []}),
        ("decode", {"codes": [[0]]}),
        ("decode", {"codes": [["a", 0]]}),
        ("decode", b'{"codes": [[NaN, 0]]}'),
        ("decode", {"codes": [[1e300, 0]]}),
        ("decode", {"codes": [[1e9, 0]]}),
        ("decode", {"codes": [[[0, 0]]]}),
        ("decode", {"codes": [[0, 0]] * 5000}),
        ("decode", {"codes": [[0, 0]], "labels": [0, 0]}),
        ("images", {"indices": [-1]}),
        ("images", {"indices": [120]}),
        ("images", {"indices": []}),
        ("images", {"indices": ["0"]}),
        ("images", {"indices": [True]}),
        ("images", {"indices": [0], "side": 0}),
        ("neighbours", {"index": 120}),
        ("neighbours", {"index": 0, "count": 10**9}),
        ("sample", {"count": 0}),
        ("sample", {"count": 10**9}),
        ("sample", {"seed": -1}),
        ("sample", {"sampler": 3}),
        ("sample", {"fraction": "x"}),
        ("sample", {"label": 0}),
        ("reach", {"codes": [[0, 0, 0]]}),
        ("locate", b""),
        ("locate", b"\x89PNG\r\n\x1a\n" + b"\0" * 100),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(client, what, body):
    answer = client(
        f"/api/runs/0/{what}", body, {"content-type": "application/octet-stream"} if what == "locate" else {}
    )
    assert answer[0] == 400 and len(words(answer)) > 10


def test_a_picture_that_would_fill_the_memory_is_refused(client):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 10000)) + chunk(b"IEND", b"")
    answer = client("/api/runs/0/locate", bomb, {"content-type": "application/octet-stream"})
    assert answer[0] == 400 and "60000" in words(answer).replace(",", "")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(server, client):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plug:
        head = f"POST /api/runs/0/locate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        plug.sendall(f"{head}Content-Type: application/octet-stream\r\nContent-Length: {2**40}\r\n\r\nx".encode())
        assert b" 413 " in plug.recv(4096).split(b"\r\n")[0]
    # Nobody says how long it will be: what comes is counted.
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plug:
        head = f"POST /api/runs/0/decode HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        plug.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for size in (2**20, 2**20, 2**20, 2**20, 1):
            plug.sendall(f"{size:x}\r\n".encode() + b" " * size + b"\r\n")
        assert b" 413 " in plug.recv(4096).split(b"\r\n")[0]
    assert client("/api/runs/0")[0] == 200


def test_two_hosts_in_one_request_are_refused(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plug:
        plug.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 400 " in plug.recv(4096).split(b"\r\n")[0]


def test_for_another_host_everybody_needs_the_token():
    serving = Serving([], "0.0.0.0")
    thread = serving.start()
    try:
        client, (address, _, token) = Client(serving), serving.url.partition("?token=")
        assert len(token) >= 32 and address.startswith("http://")
        assert client("/")[0] == client("/api/runs")[0] == client("/?token=wrong")[0] == 403
        assert client("/api/runs", headers={"cookie": f"neurosql-{serving.port}=wrong"})[0] == 403
        status, headers, _ = client(f"/?token={token}")
        cookie = headers["set-cookie"]
        assert status == 303 and headers["location"] == "/" and "HttpOnly" in cookie and "SameSite=lax" in cookie
        kept = {"cookie": cookie.split(";")[0]}
        assert client("/", headers=kept)[0] == 200
        assert json.loads(client("/api/runs", headers=kept)[2]) == {"runs": []}
        assert client("/api/runs", headers=kept | {"origin": "http://evil.example"})[0] == 403
    finally:
        serving.stop(thread)


def test_on_loopback_no_token_is_needed_and_no_other_address_is_bound(server):
    assert server.rules.token is None and server.socket.getsockname()[0] == "127.0.0.1"
    assert Rules(80).hosts == ("127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.1", "localhost", "[::1]")


def test_a_notebook_of_this_machine_may_show_the_page_if_it_was_asked_for():
    framed, alone = Rules(5, framed=True).headers(), Rules(5).headers()
    assert "frame-ancestors http://127.0.0.1:* http://localhost:*" in framed["content-security-policy"]
    assert "x-frame-options" not in framed and alone["x-frame-options"] == "DENY"


def test_what_is_packed_is_aligned_so_that_a_browser_can_look_into_it():
    content = packed({"é": 1}, {"a": np.arange(3, dtype=np.uint8), "none": None, "b": np.ones((2, 2), np.float32)})
    length = int.from_bytes(content[:4], "little")
    head = json.loads(content[4 : 4 + length])
    assert (4 + length) % 8 == 0 and [of["at"] % 8 for of in head["arrays"].values()] == [0, 0]
    assert list(head["arrays"]) == ["a", "b"] and head["plain"] == {"é": 1}


def test_requests_are_checked_value_by_value():
    assert whole({"n": 3}, "n", 1, 5) == 3 and indices({}, "i", 5) is None
    assert numbers({"z": [[1, 2]]}, "z", 2).dtype == np.float32 and asked(b'{"a": 1}') == {"a": 1}
    for bad in ({"n": True}, {"n": 1.0}, {"n": "1"}, {"n": 6}, {}):
        with pytest.raises(InputError, match="whole number from 1 to 5"):
            whole(bad, "n", 1, 5)
