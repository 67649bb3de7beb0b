"""What the outside may see, shaped once for CLI, API, web and chat."""
