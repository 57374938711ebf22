"""Hubs, their log and the network between them, in one event loop that a seed decides about (X11).

    loop.py      virtual time; the seed says which of the callbacks that are ready runs next
    process.py   processes in one process, on hosts, with workers in them
    clock.py     the clock of one of them
    store.py     one log; each hub reaches it through a network that delays, refuses and loses answers
    wire.py      WebSocket connections that are late, and are cut
    cast.py      the agents: what they say, pause for, and do once
    flows.py     the flows: steps that the seed draws, and what a run of them comes to
    plot.py      what the conversations are like, and how each may end
    person.py    a person: opens conversations, takes part, answers others
    program.py   what a process runs: a hub, its agents, a driver of flows, a person, a door for links
    remote.py    a process without a hub: agents and a person over a link
    told.py      what all processes have noted
    world.py     all of it for one seed, and what torments it
    verdict.py   what has to be true of the log in the end
    memory.py    what the processes may keep in memory
    twins.py     the same with one guard taken out

Rule: everything that could differ between two runs is drawn from the seed: the same seed, the same log.
"""
