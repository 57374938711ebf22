"""Delegation: channels that are opened from a turn, whose speaker waits for them (T7).

    top: alice's turn  <-  below: alice asks bob; bob's turn  <-  below: bob asks carol

Rule 1: who waits is read from the log. The creator of a channel waits for it while
the turn it was opened from, on the parent, has begun and has not ended: also when
the process that waited is gone, for the next one takes the same turn up.

Rule 2: nobody is asked, directly or through others, by whom it waits for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from turnline.core.governance import Registration
from turnline.core.state import State
from turnline.errors import DelegationCycle

StateOf = Callable[[str], Awaitable[State]]


async def check_delegation(
    state_of: StateOf, parent: State, opener: Registration, asked: Iterable[Registration]
) -> None:
    """Refuse to open a channel below `parent` if one of those `asked` waits for it."""
    chain = [(opener.agent_id, opener.name), *await _waiting_for(state_of, parent)]
    ids = [agent_id for agent_id, _ in chain]
    for one in asked:
        if one.agent_id in ids:
            waits = [name for _, name in chain[ids.index(one.agent_id) :: -1]]
            raise DelegationCycle([*waits, one.name])


async def _waiting_for(state_of: StateOf, channel: State) -> list[tuple[str, str]]:
    """Id and name of everybody who waits for the turn on `channel` to end, nearest first."""
    waiting = list[tuple[str, str]]()
    while channel.spec.parent_id is not None:  # At most `max_depth` times.
        parent = await state_of(channel.spec.parent_id)
        speaker = parent.spec.participant(parent.expected_next_speaker or "")
        if speaker is None or not parent.claims:
            break
        if speaker.agent_id == channel.creator_id:
            waiting.append((speaker.agent_id, speaker.name))
        elif speaker.kind != "step":  # A step waits on nobody's behalf; whoever is above it does.
            break
        channel = parent
    return waiting
