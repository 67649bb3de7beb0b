"""Small asyncio parts: children, background work, services, threads."""
