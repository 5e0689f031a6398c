"""All planted mistakes."""

from __future__ import annotations

from tests.mutants.agent import AGENT
from tests.mutants.beside_brokers import BESIDE_BROKERS
from tests.mutants.cleaning import CLEANING
from tests.mutants.clients import CLIENTS
from tests.mutants.daemon import DAEMON
from tests.mutants.kernel import KERNEL
from tests.mutants.replacing import REPLACING
from tests.mutants.retention import RETENTION
from tests.mutants.strategies import STRATEGIES

MUTANTS = (
    *RETENTION,
    *STRATEGIES,
    *CLEANING,
    *REPLACING,
    *BESIDE_BROKERS,
    *CLIENTS,
    *DAEMON,
    *KERNEL,
    *AGENT,
)
