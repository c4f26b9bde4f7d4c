"""A server behind a proxy that speaks TLS, as the page on proxies has it."""

from __future__ import annotations

import http.client
from pathlib import Path

from tallystick import Tally
from tallystick_server import serve_in_background

NAME = "memory.example.org"


def test_pages_behind_a_proxy_with_tls_have_their_own_origin_and_no_other(tmp_path: Path) -> None:
    with Tally.open(tmp_path, background=False) as tally:
        secret = tally.bind().tokens.make("laptop").secret
        with serve_in_background(tally, port=0, hosts=[NAME]) as (address,):

            def status(host: str, **headers: str) -> int:
                connection = http.client.HTTPConnection(address.removeprefix("http://"))
                sent = {name.replace("_", "-"): value for name, value in headers.items()}
                sent |= {"Host": host, "Authorization": f"Bearer {secret}"}
                connection.request("GET", "/v1/whoami", headers=sent)
                answered = connection.getresponse().status
                connection.close()
                return answered

            own = {"Origin": f"https://{NAME}"}
            assert status(NAME, X_Forwarded_Proto="https", **own) == 200
            assert status(NAME, **own) == 403, "the proxy did not say that it speaks TLS"
            assert status("other.example.org", X_Forwarded_Proto="https") == 421
