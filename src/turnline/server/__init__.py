"""Flows, channels and the studio over HTTP. Knows who is asking; everything else is decided below."""
