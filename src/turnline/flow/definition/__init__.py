"""What a flow's document may say: where errors, defaults and the editor's JSON Schema come from."""
