"""Models that answer over the network, behind the port of `turnline.agent.model`.

    conversion.py     our messages in pydantic-ai's JSON, and its replies in ours
    pydantic_ai.py    one request, one reply, through pydantic-ai's `direct` module
    failures.py       whatever went wrong, as a `ModelError` that holds no secret
    lifetime.py       how long a provider's client stays open
    providers.py      how each provider's model is made

Rule: importing any of these imports no provider's package. They are imported
when a model answers for the first time, in a thread, because that takes seconds.
"""
