"""Asks a server of the explorer, for its tests."""

import json
import urllib.error
import urllib.request

import numpy as np


class Client:
    """Asks a server, with or without what browsers add."""

    def __init__(self, serving):
        self.base = f"http://127.0.0.1:{serving.port}"

    def __call__(self, path, body=None, headers=None, method=None):
        """Status, headers and content of the answer."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        kind = {} if data is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.base + path, data, kind | (headers or {}), method=method)
        try:
            with urllib.request.build_opener(Stay).open(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


class Stay(urllib.request.HTTPRedirectHandler):
    """Shows where an answer leads, and does not go there."""

    def redirect_request(self, *_):
        return None


def unpacked(content):
    """The plain values and the arrays of an answer, taken apart as the format says."""
    length = int.from_bytes(content[:4], "little")
    head = json.loads(content[4 : 4 + length])
    start, arrays = 4 + length, {}
    for name, of in head["arrays"].items():
        count = int(np.prod(of["shape"]))
        kind = {"f4": np.float32, "i4": np.int32, "u1": np.uint8}[of["type"]]
        arrays[name] = np.frombuffer(content, kind, count, start + of["at"]).reshape(of["shape"])
    return head["plain"], arrays
