"""The cast of a graph: who takes part, who opens the channel, and who has which tools.

Rule: what is not known is not assumed. Where the participants are not given, they are those
the graph names; a target that may lead to somebody else leads to `OTHER`, too. Where tools
are not given, everybody may have each of them. Unless somebody says that no tool hands off,
every turn may end with a handoff to anybody that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnline.core.channel import ChannelSpec, Participant
from turnline.core.graph import TransitionGraph
from turnline.core.step_targets import names_in, steps_of

OTHER: Final = "somebody else"
"""A participant that the graph does not name. (No id has a space.)"""
USER: Final = "user"
"""Who says the message of a `run`: a person, where nothing else is known."""
PERSON: Final = "human"
STEP: Final = "step"

Tools = Mapping[str, Iterable[str]] | Iterable[str]
"""Who has which tools, by id or name; or the tools that anybody may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Among whom a graph is judged."""

    spec: ChannelSpec
    """Everybody the graph names is in it, known or not, and `OTHER` if there may be others."""
    is_closed: bool
    """Whether the participants were given: nobody else will be there."""
    unknown: tuple[str, ...] = ()
    """Whom the graph names, and who is not among the participants that were given."""
    opener: str | None = None
    tools: Mapping[str, frozenset[str]] | None = None
    """By id."""
    handoffs: bool = True
    named: tuple[str, ...] = field(default=())
    """The ids of those whom the graph names."""

    @property
    def everyone(self) -> tuple[str, ...]:
        return tuple(one.agent_id for one in self.spec.participants)

    @property
    def known(self) -> tuple[str, ...]:
        """Everyone but `OTHER`."""
        return tuple(one for one in self.everyone if one != OTHER)

    def is_person(self, agent_id: str) -> bool:
        """Whether a person has the turns of this participant, as far as that is known."""
        is_user = self.spec.name_of(agent_id) == USER and not self.is_closed
        return is_user or self.spec.kind_of(agent_id) == PERSON

    def may_call(self, agent_id: str, tool: str) -> bool:
        return self.tools is None or agent_id not in self.tools or tool in self.tools[agent_id]

    @property
    def every_tool(self) -> frozenset[str] | None:
        """All tools there are; None if they are not known, be it of one participant who may have some."""
        if self.tools is None or any(
            self._may_have_tools(one) and one not in self.tools for one in self.known
        ):
            return None
        return frozenset().union(*self.tools.values())

    def _may_have_tools(self, agent_id: str) -> bool:
        return not self.is_person(agent_id) and agent_id in self.spec.turn_order


def cast_of(
    graph: TransitionGraph,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
    tools: Tools | None = None,
    handoffs: bool = True,
) -> Cast:
    """Return the cast of a graph, as far as it is known."""
    given = list(map(_member, participants or ()))
    ids = {one.agent_id for one in given}
    steps = [Participant(one, one, STEP, played_by=OTHER) for one in steps_of(graph) if one not in ids]
    known = {name for one in (*given, *steps) for name in (one.agent_id, one.name)}
    missing = [name for name in names_in(graph) if name not in known]
    if opener is not None and opener not in known and opener not in missing:
        missing.append(opener)
    members = [*given, *map(_member, missing), *steps]
    if participants is None:
        members.append(Participant(OTHER, OTHER))
    spec = ChannelSpec(channel_id="study", type="workflow", participants=members)
    if opener is not None:
        spec = _opened_by(spec, spec.resolve(opener))
    return Cast(
        spec=spec,
        is_closed=participants is not None,
        unknown=() if participants is None else tuple(one for one in missing if one != opener),
        opener=spec.creator_id or None,
        tools=None if tools is None else _by_id(tools, spec),
        handoffs=handoffs,
        named=tuple(dict.fromkeys(map(spec.resolve, names_in(graph)))),
    )


def _member(one: str | Participant) -> Participant:
    return Participant(one, one) if isinstance(one, str) else one


def _opened_by(spec: ChannelSpec, opener: str) -> ChannelSpec:
    """The opener comes first, as it does on a channel."""
    members = sorted(spec.participants, key=lambda one: one.agent_id != opener)
    return ChannelSpec(channel_id=spec.channel_id, type=spec.type, participants=members, creator_id=opener)


def _by_id(tools: Tools, spec: ChannelSpec) -> Mapping[str, frozenset[str]]:
    if isinstance(tools, Mapping):
        names = spec.names()  # What somebody has who does not take part is nothing to the graph.
        return {names[name]: frozenset(each) for name, each in tools.items() if name in names}
    each = frozenset(tools)
    return {one.agent_id: each for one in spec.participants}
