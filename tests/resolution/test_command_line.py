"""Settings on a running broker's command line override its server.properties (U-24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.command_line import overrides_in
from cleanerd.config.load import load_settings
from cleanerd.errors import ConfigError
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import good, lock_holder
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path


def test_they_apply_while_the_broker_runs(tmp_path: Path) -> None:
    """The last batch of a producer that the broker knows stays, and it may know it for longer than its file says."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": good()})
    properties = tmp_path / "server.properties"
    properties.write_text("producer.id.expiration.ms=1000\nlog.cleaner.delete.retention.ms=5\nnode.id=1\n")
    reported = [f"cleanerd.state.dir={tmp_path / 'state'}", f"cleanerd.broker.properties={properties}"]
    settings, log_dir = load_settings(assignments=reported), read_log_dir(path)
    words = ("kafka.Kafka", "server.properties", "--override", "producer.id.expiration.ms=2000")
    with lock_holder(path, *words):
        facts = broker_facts(settings, log_dir, [], running=True)
        assert facts.producer_id_expiration_ms() == 2000
        assert facts.topic_config("orders").delete_retention_ms == 5
        assert broker_facts(settings, log_dir, []).producer_id_expiration_ms() == 1000
    assert broker_facts(settings, log_dir, [], running=True).producer_id_expiration_ms() == 1000
    properties.write_text("node.id=77\n")
    with lock_holder(path, "--override", f"node.id={log_dir.meta.node_id}"):
        assert broker_facts(settings, log_dir, [], running=True).server_properties is not None
    with pytest.raises(ConfigError, match=r"node\.id is 77"):
        broker_facts(settings, log_dir, [], running=True)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["java", "kafka.Kafka", "f", "--override", "a=1", "--override", "b=2=3"], {"a": "1", "b": "2=3"}),
        (["--override=a=1", "--override", "a=2"], {"a": "2"}),
        (["--override"], {}),
        (["--override", ""], {}),
        (["--override", "=1", "--override", "a=", "--overrides", "a=1"], {}),
        ([""], {}),
    ],
)
def test_as_kafka_reads_it(words: list[str], found: dict[str, str]) -> None:
    """Of two the later one; Kafka does not start with an option without a setting."""
    assert overrides_in(words) == found
