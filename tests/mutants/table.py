"""All planted mistakes."""

from __future__ import annotations

from tests.mutants.agent import AGENT
from tests.mutants.beside_brokers import BESIDE_BROKERS
from tests.mutants.canary import CANARY
from tests.mutants.cleaning import CLEANING
from tests.mutants.clients import CLIENTS
from tests.mutants.cluster import CLUSTER
from tests.mutants.copies import COPIES
from tests.mutants.daemon import DAEMON
from tests.mutants.daemons_clock import DAEMONS_CLOCK
from tests.mutants.erasing import ERASING
from tests.mutants.estimates import ESTIMATES
from tests.mutants.half_swaps import HALF_SWAPS
from tests.mutants.hints import HINTS
from tests.mutants.kernel import KERNEL
from tests.mutants.loopback import AGENTS_LOOPBACK, LOOPBACK
from tests.mutants.memory import MEMORY
from tests.mutants.moving_logs import MOVING_LOGS
from tests.mutants.names import NAMES
from tests.mutants.replacing import REPLACING
from tests.mutants.replicas import REPLICAS
from tests.mutants.retention import RETENTION
from tests.mutants.rules_memory import RULES_MEMORY
from tests.mutants.scans import SCANS
from tests.mutants.spark_profile import SPARK_PROFILE
from tests.mutants.spark_source import SPARK_SOURCE
from tests.mutants.spark_tables import SPARK_TABLES
from tests.mutants.spark_values import SPARK_VALUES
from tests.mutants.state_digests import STATE_DIGESTS
from tests.mutants.strategies import STRATEGIES
from tests.mutants.undoing import UNDOING
from tests.mutants.verifying import VERIFYING

MUTANTS = (
    *RETENTION,
    *STATE_DIGESTS,
    *STRATEGIES,
    *RULES_MEMORY,
    *COPIES,
    *CLEANING,
    *CANARY,
    *CLUSTER,
    *MOVING_LOGS,
    *REPLACING,
    *UNDOING,
    *VERIFYING,
    *HINTS,
    *NAMES,
    *BESIDE_BROKERS,
    *LOOPBACK,
    *HALF_SWAPS,
    *CLIENTS,
    *DAEMON,
    *DAEMONS_CLOCK,
    *ERASING,
    *ESTIMATES,
    *REPLICAS,
    *SCANS,
    *MEMORY,
    *SPARK_SOURCE,
    *SPARK_PROFILE,
    *SPARK_TABLES,
    *SPARK_VALUES,
    *KERNEL,
    *AGENT,
    *AGENTS_LOOPBACK,
)
