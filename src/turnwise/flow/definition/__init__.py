"""What a flow's document may say: the one place that errors, defaults and the editor's JSON Schema come from."""
