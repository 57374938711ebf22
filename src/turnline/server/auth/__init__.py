"""Who is asking, and whether they may (F13).

    header -> credentials.py -> authenticator.py -> Principal -> operations.py -> yes, or an error

A token is a Biscuit: `biscuit.py` makes one, `reading.py` says what it grants, in a process of its own
(`process.py`), `revocation.py` knows the ones that were taken back. `assembly.py` puts the parts together.

Rule: nothing is granted that no authority said. An unknown operation, a token that holds anything
unexpected, a list of revocations that cannot be read: the answer is no.
"""
