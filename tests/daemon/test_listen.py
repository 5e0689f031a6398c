"""The daemon's HTTP server: the forms of its listen address, and the messages about an unusable one."""

from __future__ import annotations

import re

import pytest

from cleanerd.daemon.http.server import parse_listen
from cleanerd.errors import ConfigError
from tests.daemon.promtool import ROOT
from tests.daemon.serving import serving
from tests.daemon.views import view


@pytest.mark.parametrize(
    ("listen", "meant"),
    [
        ("127.0.0.1:10280", ("127.0.0.1", 10280)),
        ("[::1]:0", ("::1", 0)),
        ("::1:80", ("::1", 80)),
        (":9", (None, 9)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_listen_forms(listen: str, meant: tuple[str | None, int]) -> None:
    assert parse_listen(listen) == meant


@pytest.mark.parametrize(
    "listen", ["", "10280", "localhost", "a:b:80", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1"]
)
def test_listen_mistakes_are_reported(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_listen(listen)


def test_a_port_in_use_is_reported() -> None:
    with serving(view()) as first:
        taken = f"127.0.0.1:{first.port}"
        with (
            pytest.raises(ConfigError, match=r"cleanerd\.http\.listen.*another process has"),
            serving(view(), listen=taken),
        ):
            pass


@pytest.mark.parametrize("listen", ["a..b:1", "no.such.host.invalid:1", "999.1.1.1:1", "192.0.2.1:1"])
def test_an_invalid_address_is_reported(listen: str) -> None:
    """A name with an empty label was an unexpected error; all others were reported as a port in use."""
    with pytest.raises(ConfigError) as raised, serving(view(), listen=listen):
        pass
    assert str(raised.value).startswith(f"cleanerd.http.listen = {listen}: cannot listen there: ")
    assert "name an address of this host" in str(raised.value)


@pytest.mark.parametrize(
    ("listen", "code"),
    [("TAKEN", 4), ("192.0.2.1:1", 4), ("no.such.host.invalid:1", 4), ("a..b:1", 3)],
)
def test_a_passing_address_error_lets_systemd_restart_the_unit(listen: str, code: int) -> None:
    """At boot the address or the name server came later than the daemon: after exit code 3 nothing restarts it."""
    with serving(view()) as first:
        taken = listen.replace("TAKEN", f"127.0.0.1:{first.port}")
        with pytest.raises(ConfigError) as raised, serving(view(), listen=taken):
            pass
    assert raised.value.exit_code == code
    unit = (ROOT / "systemd" / "cleanerd.service").read_text(encoding="utf-8")
    (never,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert (str(code) in never.split()) == (code == 3)
