"""Hubs, their log and the network between them, in one event loop that a seed decides about (X11).

    loop.py      virtual time; which of those who could go on does, the seed says
    process.py   processes in one process, on hosts, with workers in them
    clock.py     the clock of one of them
    store.py     one log; each hub reaches it through a network that delays, refuses and loses answers
    cast.py      the agents: what they say, and the tool that leaves a mark
    plot.py      what the conversations are like, and how each may end
    program.py   what a process runs: a hub, its agents, a person and the conversations it opens
    world.py     all of it for one seed, and whoever torments it
    verdict.py   what has to be true of the log in the end
    twins.py     the same with one guard taken out

Rule: everything that could differ between two runs is drawn from the seed: the same seed, the same log.
"""
