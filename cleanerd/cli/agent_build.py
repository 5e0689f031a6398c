"""Whether the agent in a broker has the build of this installation's jar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.broker.agent_jar import build_of_jar

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.cli.output import Output


def warn_of_another_build(output: Output, info: AgentInfo) -> None:
    """A-03: warn of another build: an older copy on the broker's class path is used silently."""
    ours = build_of_jar()
    if ours is not None and ours != info.build:
        output.warning(
            f"the agent in process {info.pid} is build {info.build}, but this cleanerd has {ours}: run cleanerd agent "
            "attach, or restart the broker with the jar of cleanerd agent path; an old copy on its class path wins"
        )
