"""The values of the daemon's own keys, and the default of its state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleanerd.config.keys import DAEMON_FIELDS, kind_of
from cleanerd.config.load import default_state_dir, load_settings
from cleanerd.errors import ConfigError
from tests.config.loading import load


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/var/lib/a"),
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, "/var/lib/a"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/cleanerd"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/cleanerd"),
        ({"STATE_DIRECTORY": "", "XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/cleanerd"),
    ],
)
def test_state_directory(environ: dict[str, str], path: str) -> None:
    """Systemd's directory, then the user's own; a configured one precedes both."""
    found = default_state_dir(environ, Path("/nowhere"))
    assert str(found) == path
    # Of this host, which may have the service's own.
    assert load(environ=environ).daemon.cleanerd_state_dir == default_state_dir(environ)
    assert load(environ=environ).origins["cleanerd.state.dir"] == "default"


def test_the_services_state_directory(tmp_path: Path) -> None:
    """If the service has one on this host, a command that a user types shares the daemon's state."""
    service = tmp_path / "cleanerd"
    own = {"XDG_STATE_HOME": "/x", "HOME": "/h"}
    assert default_state_dir(own, service) == Path("/x/cleanerd")
    service.touch()
    assert default_state_dir(own, service) == Path("/x/cleanerd"), "a file is not a state directory"
    service.unlink()
    service.mkdir()
    assert default_state_dir(own, service) == service
    assert default_state_dir({**own, "STATE_DIRECTORY": "/y"}, service) == Path("/y")
    assert load("cleanerd.state.dir=/z", environ=own).daemon.cleanerd_state_dir == Path("/z")


def test_optional_values() -> None:
    daemon = load("cleanerd.disk.reserve=5GiB", "cleanerd.broker.properties=~/server.properties").daemon
    assert daemon.cleanerd_disk_reserve == 5 * 2**30
    assert "~" not in str(daemon.cleanerd_broker_properties)
    assert load("cleanerd.disk.reserve=auto").daemon.cleanerd_disk_reserve is None
    assert load().daemon.cleanerd_metadata_log_dir is None


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", None),
        ("log.cleaner.io.max.bytes.per.second", "1048576.5", 1_048_576),
        ("cleanerd.io.read.max.bytes.per.second", "10MiB", 10 * 1024 * 1024),
        ("cleanerd.io.write.max.bytes.per.second", "unlimited", None),
        ("cleanerd.http.listen", "off", None),
        ("cleanerd.http.listen", "[::1]:10280", ("[::1]", 10280)),
        ("cleanerd.log.dirs", "/a, /b", (Path("/a"), Path("/b"))),
        ("cleanerd.metrics.kafka.names", "False", False),
        ("cleanerd.topics.include", "orders,pay*", ("orders", "pay*")),
    ],
)
def test_values_of_the_daemons_keys(key: str, text: str, value: object) -> None:
    """Kafka's doubles too; the shown form of a value can be read back."""
    settings = load_settings([], [f"{key}={text}"], {})
    assert settings.value(key) == value
    again = kind_of(DAEMON_FIELDS[key]).write(value)
    assert load_settings([], [f"{key}={again}"], {}).value(key) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("log.cleaner.io.max.bytes.per.second", "0"),
        ("log.cleaner.io.max.bytes.per.second", "fast"),
        ("cleanerd.http.listen", "10280"),
        ("cleanerd.http.listen", "localhost:99999"),
        ("cleanerd.log.dirs", "/a,,/b"),
        ("cleanerd.metrics.kafka.names", "yes"),
        ("cleanerd.windows", "at night"),
        ("cleanerd.spark.threshold.keys", "0"),
        ("cleanerd.spark.threshold.keys", "1e9"),
        ("cleanerd.spark.master", "a b"),
        ("cleanerd.mode", "offline"),
    ],
)
def test_invalid_values_of_the_daemons_keys(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        load_settings([], [f"{key}={text}"], {})
