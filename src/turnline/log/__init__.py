"""Where envelopes are kept: one protocol, several backends."""
