"""The data that Holdfast shows, shaped once for the CLI, the API and chat."""
